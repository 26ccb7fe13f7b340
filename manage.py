#!/usr/bin/env python
"""Django's entry. Starts the private servers where the environment names none, and brings the tables up to date."""

import gc
import os
import signal
import sys
import traceback
from pathlib import Path

from webapp.backup import check
from webapp.embedded import ensure
from webapp.embedded.launch import CannotStart

# Commands that read or make files only; the doctor and mcp ask servers that run, and start none.
SERVERLESS = {"runs", "help", "version", "--help", "-h", "--version", "collectstatic", "findstatic", "diffsettings", "spectacular",
              "doctor", "mcp"}
# Commands that manage the tables themselves, or wait for others to do it.
UNMIGRATED = {"migrate", "makemigrations", "showmigrations", "sqlmigrate", "optimizemigration", "squashmigrations",
              "dbshell", "flush", "check", "shell", "web", "restore"}

# New objects between two collections. What a start imports stays: looking through it again and again took a sixth of its time.
GC_THRESHOLD = 50_000


def offline(command: str, arguments: list[str]) -> bool:
    """`gate` between two files, a look at backups, and `operators` over a kernel file, read them and nothing else."""
    if command == "backup":
        return "--check" in arguments or "--list" in arguments
    if command == "operators":
        return next((each for each in arguments if not each.startswith("-")), "") in ("check", "init")
    return command == "gate" and any(each.partition("=")[0] in ("--baseline", "--candidate") for each in arguments)


def prepare_doctor(home: Path) -> None:
    """It starts nothing, makes no key, and waits for nobody long."""
    ensure.name_servers(home)
    os.environ["RIDGEPOINT_WEB_PROCESS"] = "1"
    if not os.access(home / "secret_key", os.R_OK):
        os.environ.setdefault("RIDGEPOINT_SECRET_KEY", "none was made yet: it is looked at, not used")


def main() -> None:
    project = Path(__file__).resolve().parent
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "webapp.settings")
    gc.disable()
    gc.set_threshold(GC_THRESHOLD, *gc.get_threshold()[1:])
    signal.signal(signal.SIGTERM, lambda number, frame: sys.exit(128 + number))     # so that exit handlers run
    command = sys.argv[1] if len(sys.argv) > 1 else "help"
    if command == "web":
        os.environ["RIDGEPOINT_WEB_PROCESS"] = "1"      # before the settings are read
    if command == "doctor":
        prepare_doctor(Path(os.environ.get("RIDGEPOINT_HOME") or project / "var").absolute())
    if command in ("runs", "mcp") or (command in ("gate", "operators") and offline(command, sys.argv[2:])):
        os.environ.setdefault("RIDGEPOINT_SECRET_KEY", "a look at a file needs none")
    if command == "restore" and (wrong := check.choose_home(sys.argv[2:], os.environ)):
        raise CannotStart(wrong)
    if command not in SERVERLESS and "--help" not in sys.argv and not offline(command, sys.argv[2:]):
        home = Path(os.environ.get("RIDGEPOINT_HOME") or project / "var").absolute()
        try:
            if wrong := check.refuse_half_restored(home, command):
                raise CannotStart(wrong)
            ensure.begin_servers(home)
        except OSError as error:
            if not str(error.filename or "").startswith(str(home)):
                raise
            raise CannotStart(f"RIDGEPOINT_HOME={home} cannot be used: {error.strerror} ({error.filename})") from error
        import django

        django.setup()          # while the servers come up
        ensure.wait_for_servers(for_room=command == "serve")
        if command not in UNMIGRATED:
            from webapp import schema  # needs the app registry

            schema.bring_up_to_date()
    from django.core.management import execute_from_command_line

    gc.freeze()
    gc.enable()
    try:
        execute_from_command_line(sys.argv)
    finally:
        gc.freeze()             # else the interpreter looks through all of it once more before it ends: a third of a second


if __name__ == "__main__":
    try:
        main()
    except KeyboardInterrupt:
        sys.exit(130)
    except (CannotStart, TimeoutError) as error:
        sys.stderr.write(f"{error}\n")
        sys.exit(3 if sys.argv[1:2] == ["gate"] else 1)
    except Exception as error:
        from django.core.exceptions import ImproperlyConfigured

        if isinstance(error, ImproperlyConfigured):
            sys.exit(str(error))
        from webapp.outage import outage_of  # what it imports is imported by now

        outage, is_gate = outage_of(error), sys.argv[1:2] == ["gate"]
        if outage is None and not is_gate:
            raise
        if outage is None:
            traceback.print_exc()
        else:
            sys.stderr.write(f"{outage.what} ({str(error).splitlines()[0] if str(error) else type(error).__name__})\n")
        sys.exit(3 if is_gate else 1)           # 1 is what a gate says of a slower build
