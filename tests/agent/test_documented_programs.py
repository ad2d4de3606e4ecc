"""The programs of the tracing manual that the user gave, and what it says of them."""

from pathlib import Path

from rankscope.testing import RecordedSpans
from tests.agent.programs import Ended, run_program
from tests.agent.spooled import rows_in

REDACTED = "[REDACTED]"

START = """
import asyncio
import rankscope as im

run = im.init(
    project="cartpole",
    name="ppo-seed-42",
    config={"algorithm": "ppo", "env": "CartPole-v1", "seed": 42},
)
"""

BASIC = """
with run.trace(
    "rollout episode 42",
    kind="rollout",
    step=42,
    attributes={"env": "CartPole-v1"},
    inputs={"episode": 42},
    capture="preview",
) as rollout:
    with rollout.span(
        "policy.forward",
        kind="model",
        inputs={"observation": [0.0, 0.1, 0.2, 0.3]},
        capture="preview",
    ) as policy:
        action = 1
        policy.set_output({"action": action})

    with rollout.span("env.step", kind="env_step", capture="off") as step_span:
        reward = 1.0
        step_span.log_metric("reward", reward)

run.finish()
"""

DECORATED = """
@run.trace_op(
    name="reward.score",
    kind="reward",
    step=42,
    attributes={"component": "dense-reward"},
    metrics={"gen_ai.usage.input_tokens": 12},
    capture="preview",
)
def score_reward(observation, action, authorization):
    return {"reward": 0.92}
"""

CALLED = """
with run.trace("rollout episode 42", kind="rollout", step=42, capture="preview"):
    score_reward(
        {"state": [0.0, 0.1, 0.2, 0.3]},
        "accelerate",
        authorization="Bearer service-token",
    )
"""

AWAITED = """
async def rubric_model(prompt, answer):
    await asyncio.sleep(0)
    return 0.5

@run.trace_op(name="judge.answer", kind="evaluator", capture="preview")
async def judge_answer(prompt, answer):
    score = await rubric_model(prompt, answer)
    return {"score": score}

async def main():
    result = await judge_answer("question", "answer")
    assert result == {"score": 0.5}

asyncio.run(main())
"""

CARRIED = """
import threading

def tokenize():
    pass

def send_to_worker(carrier):
    thread = threading.Thread(target=worker, args=(carrier,))
    thread.start()
    thread.join()

def worker(carrier):
    with run.attach_trace_context(carrier):
        with run.start_span("worker.tokenize", kind="preprocessing"):
            tokenize()

with run.trace("batch item 17", kind="preprocessing") as trace:
    carrier = trace.context()

send_to_worker(carrier)
"""

LOOP = """
num_episodes, episode_return, policy_loss, return_mean = 51, 1.0, 0.5, 0.9
observation = {"state": [0.0, 0.1, 0.2, 0.3]}

def policy_forward(observation):
    return "accelerate"

for episode in range(num_episodes):
    run.log_metrics(
        {
            "train/episode_return": episode_return,
            "train/policy_loss": policy_loss,
            "eval/return_mean": return_mean,
        },
        step=episode,
    )

    if episode % 25 == 0:
        with run.trace("eval rollout", kind="rollout", step=episode, capture="preview"):
            action = policy_forward(observation)
            score_reward(observation, action, authorization="Bearer service-token")
"""


def ran(source: str, home: Path, **environ: str) -> Ended:
    """Run a program whose batches stay in the spool."""
    ended = run_program(START + source, home, RANKSCOPE_UPLOAD_MODE="spool", **environ)
    assert ended.code == 0, ended.err
    return ended


def spans_of(home: Path) -> RecordedSpans:
    """What the programs of a home recorded."""
    root = home / "spool"
    return RecordedSpans(rows_in(root, "spans"), rows_in(root, "events"))


def test_the_basic_tree(tmp_path: Path) -> None:
    ran(BASIC, tmp_path)

    spans = spans_of(tmp_path)
    spans.assert_tree("""
        rollout episode 42
          policy.forward
          env.step
    """)
    rollout, policy, step = (spans.one(name) for name in ("rollout episode 42", "policy.forward", "env.step"))
    assert (rollout.kind, rollout.step, rollout.attributes) == ("rollout", 42, {"env": "CartPole-v1"})
    assert (rollout.inputs, rollout.status) == ({"episode": 42}, "ok")
    assert (policy.inputs, policy.outputs) == ({"observation": [0.0, 0.1, 0.2, 0.3]}, {"action": 1})
    assert (step.inputs, step.metrics) == (None, {"reward": 1.0})
    assert {span.trace_id for span in spans} == {rollout.trace_id}


def test_a_decorated_call_nests_and_its_secret_argument_is_masked(tmp_path: Path) -> None:
    ran(DECORATED + CALLED, tmp_path)

    spans = spans_of(tmp_path)
    spans.assert_tree("""
        rollout episode 42
          reward.score
    """)
    score = spans.one("reward.score")
    assert (score.kind, score.step, score.attributes) == ("reward", 42, {"component": "dense-reward"})
    assert score.metrics == {"gen_ai.usage.input_tokens": 12}
    assert score.inputs == {
        "observation": {"state": [0.0, 0.1, 0.2, 0.3]},
        "action": "accelerate",
        "authorization": REDACTED,
    }
    assert score.outputs == {"reward": 0.92}


def test_outside_a_trace_a_decorated_call_is_a_root(tmp_path: Path) -> None:
    ran(DECORATED + "score_reward({}, 'accelerate', authorization='Bearer service-token')", tmp_path)

    spans = spans_of(tmp_path)
    assert [root.name for root in spans.roots] == ["reward.score"]


def test_a_decorated_coroutine_records_what_its_body_returned(tmp_path: Path) -> None:
    ran(AWAITED, tmp_path)

    judge = spans_of(tmp_path).one("judge.answer")
    assert (judge.kind, judge.status) == ("evaluator", "ok")
    assert judge.inputs == {"prompt": "question", "answer": "answer"}
    assert judge.outputs == {"score": 0.5}


def test_a_carrier_attaches_a_workers_spans(tmp_path: Path) -> None:
    ran(CARRIED, tmp_path)

    spans_of(tmp_path).assert_tree("""
        batch item 17
          worker.tokenize
    """)


def test_metrics_and_traces_of_a_loop_complement_each_other(tmp_path: Path) -> None:
    ran(DECORATED + LOOP, tmp_path)

    spans = spans_of(tmp_path)
    assert [(root.name, root.step) for root in spans.roots] == [("eval rollout", step) for step in (0, 25, 50)]
    assert [len(root.children) for root in spans.roots] == [1, 1, 1]
    scalars = rows_in(tmp_path / "spool", "scalars")
    assert len(scalars) == 3 * 51
    assert {row["name"] for row in scalars} == {"train/episode_return", "train/policy_loss", "eval/return_mean"}


def test_no_secret_of_these_programs_is_in_any_file(tmp_path: Path) -> None:
    ran(DECORATED + CALLED + LOOP, tmp_path)

    written = b"".join(path.read_bytes() for path in tmp_path.rglob("*") if path.is_file())
    assert b"reward.score" in written
    assert b"service-token" not in written
