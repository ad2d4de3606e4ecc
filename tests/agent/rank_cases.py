"""What each rank of the pool does in the tests of joining a run."""

import rankscope


def join_and_step(run_id: str | None, endpoint: str, *, steps: int) -> tuple[str, str, int]:
    """Join, make steps with a phase and a metric each, finish; run id, launch id, rank."""
    run = rankscope.init("pool", run_id=run_id, endpoint=endpoint, quiet=True)
    for index in range(steps):
        with run.step(index) as step, step.phase("forward"), run.span("layer", attributes={"rank": run.rank}):
            run.log_metric("loss", 1.0 / (index + 1))
    joined = run.id, run.launch_id, run.rank
    run.finish()
    return joined
