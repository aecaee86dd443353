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
    # Where runs with `slurm.metrics_targets` of this folder say which nodes serve: everybody's.
    run install -d -m 1777 "$METRICS_TARGETS"
    put /etc/prometheus/prometheus.yml <<CONF
global: {scrape_interval: 30s}
rule_files: ['$PROJECT/monitoring/*.yml']
scrape_configs:
  - job_name: node
    static_configs: [{targets: [$(targets 9100 "$CONTROLLERS" "$WORKERS")]}]
  - job_name: dcgm
    static_configs: [{targets: [$(targets 9400 "$WORKERS")]}]
  # The ranks, by the node agents of running jobs.
  - job_name: dsm
    honor_labels: true
    file_sd_configs: [{files: ['$METRICS_TARGETS/dsm-*.json'], refresh_interval: 30s}]
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
