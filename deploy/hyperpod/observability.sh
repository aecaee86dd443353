# shellcheck shell=bash
# Metrics: exporters on every node, Prometheus on the controller. Sourced by on_create.sh.

set_up_observability() {
    [[ $OBSERVABILITY == true ]] || return 0
    run apt-get install -y -q --no-install-recommends prometheus-node-exporter
    if [[ $ROLE == compute && $GPUS != 0 ]]; then
        # Of NVIDIA's repository, which HyperPod's images have set up.
        run apt-get install -y -q --no-install-recommends datacenter-gpu-manager-exporter
        run systemctl enable --now nvidia-dcgm nvidia-dcgm-exporter
    fi
    [[ $ROLE == controller ]] || return 0
    run apt-get install -y -q --no-install-recommends prometheus
    put /etc/prometheus/prometheus.yml <<CONF
global: {scrape_interval: 30s}
scrape_configs:
  - job_name: node
    static_configs: [{targets: [$(targets 9100 "$CONTROLLERS" "$WORKERS")]}]
  - job_name: dcgm
    static_configs: [{targets: [$(targets 9400 "$WORKERS")]}]
  # Slurm 25.11 and newer, with MetricsType=metrics/openmetrics in slurm.conf.
  - job_name: slurm
    metrics_path: /metrics/jobs
    scrape_interval: 60s
    static_configs: [{targets: [$(targets 6817 "$CONTROLLERS")]}]
CONF
    run systemctl restart prometheus
}

# targets PORT ADDRESSES...: as a YAML list's content.
targets() {
    local port=$1 address addresses list=""
    shift
    read -ra addresses <<<"${*//,/ }"
    for address in "${addresses[@]}"; do list+="${list:+, }'$address:$port'"; done
    printf '%s' "$list"
}
