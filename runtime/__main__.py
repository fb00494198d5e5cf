"""Entry of `runtime.pyz`: `node --run-dir D`, `exec [--run-dir D] -- CMD...`, `version`.

Must parse on any Python 3, so that an interpreter that is too old is told so.
"""

import sys

MIN_PYTHON = (3, 9)


def main():
    # type: () -> None
    """Ends the interpreter itself: zipapp's own entry drops what a function returns."""
    if sys.version_info < MIN_PYTHON:
        version = ".".join(str(part) for part in sys.version_info[:3])
        sys.stderr.write(
            "error[preflight.python]\n  what: `%s` is Python %s\n  why:  the runtime needs 3.9 or newer\n"
            "  fix:  name a newer interpreter as `container.python`\n" % (sys.executable, version)
        )
        sys.exit(3)
    from jobspec.runtime.commands import run

    sys.exit(run(sys.argv[1:]))


if __name__ == "__main__":
    main()
