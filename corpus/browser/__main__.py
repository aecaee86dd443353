"""Look at a published corpus: did the machine read the documents rightly?

    python -m corpus.browser --workspace DIR [--serve PORT]     a page on this machine
    python -m corpus.browser --workspace DIR --static FOLDER    a folder that works without a server

Served, it shows what ingest publishes next without a restart. The folder holds the documents whose
name or path fits `--include` (all by default) and opens from index.html without a network.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path

from workspace.errors import DsmError
from workspace.paths import Workspace

EXIT_DONE = 0
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
PORT = 8484


def main(arguments: Sequence[str] | None = None) -> int:
    """Serve or export; returns the exit code: 0 done, 1 failed, 2 bad usage, 130 interrupted."""
    options = _parser().parse_args(arguments)
    workspace = Workspace(options.workspace)
    cache = options.cache or workspace.cache
    try:
        if options.static is None:
            _serve(workspace.corpus, cache, options.host, options.serve)
        else:
            _export(workspace.corpus, cache, options.static, options.include)
    except DsmError as error:
        print(f"browser: {error}", file=sys.stderr)
        return EXIT_FAILED
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED
    return EXIT_DONE


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m corpus.browser",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("--workspace", type=Path, required=True, metavar="DIR", help="folder of all stages")
    way = parser.add_mutually_exclusive_group()
    way.add_argument(
        "--serve", type=_port, default=PORT, metavar="PORT",
        help=f"port to serve on (default {PORT}; 0 takes a free one)",
    )  # fmt: skip
    way.add_argument("--static", type=Path, metavar="FOLDER", help="write a folder and end")
    add("--host", default="127.0.0.1", metavar="NAME",
        help="address to serve on; there is no password, so the default is this machine alone",
    )  # fmt: skip
    add("--include", action="append", default=[], metavar="PATTERN",
        help="with --static: only documents whose name or path fits (may be given again)",
    )  # fmt: skip
    add("--cache", type=Path, metavar="DIR",
        help="folder of the search index (default WORKSPACE/.cache)",
    )  # fmt: skip
    return parser


def _port(text: str) -> int:
    port = int(text)
    if not 0 <= port <= 65535:
        raise argparse.ArgumentTypeError(f"{port} is not a port: 0 to 65535")
    return port


def _serve(corpus: Path, cache: Path, host: str, port: int) -> None:
    from corpus.browser.serve import serve

    serve(corpus, cache, host, port)


def _export(corpus: Path, cache: Path, target: Path, include: list[str]) -> None:
    from corpus.browser.static import export

    written = export(corpus, cache, target, include)
    print(f"{written.n_documents} documents, {written.bytes / 1e6:.1f} MB")
    print(f"open    {target / 'index.html'}")


if __name__ == "__main__":
    sys.exit(main())
