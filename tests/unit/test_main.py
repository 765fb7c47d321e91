"""How errors reach whoever called the command."""

import pytest

from utterd import __main__
from utterd.cli.exit_status import ExitStatus
from utterd.errors import ConfigurationError

ERROR = ConfigurationError("set it right")


@pytest.mark.parametrize(
    "raised", [ERROR, ExceptionGroup("tasks", [ExceptionGroup("more", [ERROR])])]
)
def test_an_error_of_ours_is_a_line_and_a_status(raised, monkeypatch, capsys):
    """Also out of a task group: systemd starts anything again that is not 78."""

    def fail():
        raise raised

    monkeypatch.setattr(__main__, "app", fail)
    with pytest.raises(SystemExit) as end:
        __main__.main()
    assert end.value.code == ExitStatus.CONFIGURATION
    assert capsys.readouterr().err == "utterd: set it right\n"
