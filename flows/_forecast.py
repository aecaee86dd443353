"""`python -m flows.ingest … --dry-run`: the forecast of `corpus.forecast` as text."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from corpus.forecast import MAX_COUNTED, Forecast, make_forecast
from corpus.ingest_config import IngestConfig
from corpus.survey import survey
from tasks.cluster import load_cluster
from workspace.progress import clock

CLUSTERS = Path(__file__).parent / "clusters"
_SHOWN_FORMATS = 12


def preview_ingest(config: IngestConfig) -> str:
    """What a run would do and take; writes nothing."""
    cluster = load_cluster(config.cluster, CLUSTERS)
    seen = survey(config)
    if seen.published is not None:
        return f"nothing to do: already published in {config.folder}"
    if cluster.type == "local":
        where, cores = f"{config.workers} worker(s) on this machine", config.workers
    else:
        jobs = cluster.maximum_jobs
        where, cores = f"{jobs} job(s) of {cluster.cores} cores", jobs * cluster.cores
    forecast = make_forecast(config, seen, cores=cores)
    return "\n".join(_lines(forecast, where, config))


def _lines(forecast: Forecast, where: str, config: IngestConfig) -> Iterator[str]:
    todo = sum(line.files for line in forecast.formats)
    yield f"{forecast.shards} shard(s) to do, into {config.folder}"
    yield (
        f"  files        {forecast.files:,}: {forecast.duplicates:,} twice, "
        f"{forecast.done:,} done before, {todo:,} document(s) to parse"
    )
    yield from _formats(forecast)
    yield f"  {'core-hours':<12} {_hours(forecast.total_core_s)} in all"
    for step, seconds in sorted(forecast.core_s.items(), key=lambda item: -item[1]):
        yield f"    {step:<22} {_hours(seconds):>10}"
    basis = (
        f"measured costs, scaled by {forecast.scale:.2f} after the run that is published here"
        if forecast.scale != 1.0
        else "costs measured on another machine"
    )
    yield f"  wall time    about {clock(forecast.wall_s)} with {where} ({basis})"
    yield from _disk(forecast, config)


def _formats(forecast: Forecast) -> Iterator[str]:
    for line in forecast.formats[:_SHOWN_FORMATS]:
        pages = f"{line.pages:>10,} pages" if line.pages else ""
        yield f"    {line.name:<12} {line.files:>9,} {line.bytes / 1e6:>12,.1f} MB {pages}".rstrip()
    rest = forecast.formats[_SHOWN_FORMATS:]
    if rest:
        size = sum(line.bytes for line in rest) / 1e6
        yield f"    {'other':<12} {sum(line.files for line in rest):>9,} {size:>12,.1f} MB"
    if forecast.pdfs > MAX_COUNTED:
        yield (
            f"    pages were counted in {forecast.counted_pdfs:,} of {forecast.pdfs:,} PDFs "
            "and estimated from size for the others"
        )


def _disk(forecast: Forecast, config: IngestConfig) -> Iterator[str]:
    needed, free = forecast.disk_bytes / 1e9, forecast.disk_free / 1e9
    yield f"  disk         about {needed:,.1f} GB while it runs, {free:,.1f} GB free"
    if needed > free:
        yield (
            f"  WARNING      {config.workspace} has too little space: free "
            f"{needed - free:,.1f} GB, or give another --workspace or a lower --page-dpi"
        )


def _hours(seconds: float) -> str:
    return f"{seconds / 3600:,.2f} h" if seconds >= 36 else f"{seconds:,.1f} s"
