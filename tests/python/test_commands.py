import pytest

import dflop


def test_a_plan_is_simulated(source):
    data = str(source / "traces" / "datasets" / "vision_mix.csv")
    plan = dflop.plan(model="tiny-vlm", cluster="a100-80g:1", data=data, gbs=16)
    assert plan["schema"] == "dflop.plan" and plan["gbs"] == 16
    result = dflop.simulate(plan, data=data, iterations=2, scheduler="lpt")
    assert len(result["iterations_s"]) == 2
    assert result["iteration_s_mean"] == pytest.approx(sum(result["iterations_s"]) / 2)


def test_errors_are_the_commands_own(source):
    with pytest.raises(dflop.CommandError, match="--colour"):
        dflop.plan(model="tiny-vlm", colour="red")
    with pytest.raises(dflop.CommandError, match="did you mean 'tiny-vlm'") as caught:
        dflop.plan(model="tiny-vl", cluster="a100-80g:1", data="none.csv", gbs=16)
    assert caught.value.exit_code == 2
    data = str(source / "traces" / "datasets" / "vision_mix.csv")
    with pytest.raises(dflop.Infeasible):
        dflop.plan(model="internvl2.5-72b", cluster="a100-80g:1", data=data, gbs=16)


def test_compare_gives_rows(source):
    data = str(source / "traces" / "datasets" / "vision_mix.csv")
    rows = dflop.compare(
        model="tiny-vlm", cluster="a100-80g:1", data=data, gbs=16, iterations=1, systems="pytorch,dflop"
    )
    assert {row["system"] for row in rows["systems"]} == {"pytorch", "dflop"}
    pandas = pytest.importorskip("pandas")
    table = rows["systems"].to_pandas()
    assert isinstance(table, pandas.DataFrame) and set(table["system"]) == {"pytorch", "dflop"}


def test_options_are_passed_as_the_command_line_has_them(broken):
    broken("""shift; printf '{"arguments": "'; printf '%s ' "$@"; printf '"}'; echo 'a note' >&2""")
    result = dflop.run("data stats", "x.csv", flag=True, none=None, no=False, some_list=[1, 2], number=3)
    assert result["arguments"] == "stats x.csv --flag --some-list 1 --some-list 2 --number 3 --format json "
    assert result.notes == ["a note"]


@pytest.mark.parametrize("output", ["echo hello", "echo 12", "printf '{'"])
def test_what_prints_no_result_is_an_error(broken, output):
    broken(output)
    with pytest.raises(dflop.CommandError, match="expected a result as JSON, found"):
        dflop.plan(model="tiny-vlm")


def test_what_dies_is_an_error(broken):
    broken("kill -9 $$")
    with pytest.raises(dflop.CommandError, match="exit code -9"):
        dflop.plan(model="tiny-vlm")
