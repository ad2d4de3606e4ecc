"""Statements that nobody should send: known attacks, and pieces of them and of honest statements mixed at random.

A statement is a function of its number, so that a failure can be asked for again by it.
"""

import random
import re
from collections.abc import Iterator, Sequence

HONEST = [
    "SELECT count(), sum(duration_ns) / 1e6 AS ms FROM spans s WHERE s.rank IN (1, 2, -3) AND name LIKE 'st%'",
    "SELECT rank, quantile(0.99)(duration_ns) AS q FROM spans GROUP BY rank HAVING q > 3 ORDER BY q DESC LIMIT 10",
    "WITH a AS (SELECT * FROM spans) SELECT a.rank, m.value FROM a ANY LEFT JOIN metrics m USING (rank, step) LIMIT 3",
    "SELECT rank FROM spans UNION ALL SELECT rank FROM metrics",
    "SELECT CASE WHEN rank = 1 THEN 'x' ELSE 'y' END AS c, if(rank = 1, 2, 3) AS d FROM spans",
    "SELECT arrayMap(x -> x + 1, shape) AS s, toFloat64(numel_local) AS n FROM tensor_stats LIMIT 1 BY name",
    "SELECT rank, row_number() OVER (PARTITION BY rank ORDER BY start_ns) AS n FROM spans",
    "SELECT DISTINCT name, attributes['device'] AS device FROM spans",
    "SELECT count() AS n FROM spans WHERE rank IN (SELECT rank FROM metrics WHERE value > 0)",
    "SELECT toStartOfInterval(start, INTERVAL 5 MINUTE) AS t, count() AS n FROM spans GROUP BY t",
    "SELECT e.kind, e.name, g.cause FROM events e, gaps g WHERE e.rank = g.rank",
    "SELECT (SELECT max(rank) FROM spans) AS m, EXISTS (SELECT 1 FROM runs) AS e, 'a\\'b' AS t",
    "SELECT TraceId, SpanAttributes['step'] AS step FROM otel_traces WHERE Duration > 0",
    "SELECT toInt64OrNull(name) AS n, CAST(rank AS Nullable(Float64)) AS r, rank::Int64 AS i FROM spans",
    "SELECT max(toInt64(rollout_id)) AS n FROM spans WHERE rollout_id != ''",
    "SELECT intDiv(100, rank) AS n FROM spans WHERE rank > 0",
]
"""Statements that are answered."""

ATTACKS = [
    *("SELECT * FROM system.tables", "SELECT * FROM system.one", "SELECT * FROM information_schema.tables"),
    *("SELECT * FROM file('{path}', 'LineAsString')", "SELECT * FROM url('http://127.0.0.1:{port}/', 'RawBLOB')"),
    *("SELECT * FROM s3('http://127.0.0.1:{port}/x')", "SELECT * FROM remote('127.0.0.1:{port}', system.one)"),
    *("SELECT * FROM mysql('127.0.0.1:{port}', 'a', 'b', 'c', 'd')", "SELECT * FROM numbers(10)"),
    *("SELECT * FROM spans INTO OUTFILE '{path}.out'", "INSERT INTO FUNCTION file('{path}.out') SELECT 1"),
    *("SELECT * FROM executable('cat {path}', 'TSV', 'x String')", "SELECT * FROM merge(currentDatabase(), '.*')"),
    *("SELECT * FROM spans SETTINGS readonly = 0", "SET readonly = 0", "SELECT 1; DROP TABLE spans"),
    *(
        "SELECT * FROM spans FORMAT Native",
        "SELECT * FROM landing",
        "SELECT * FROM batches",
        "SELECT * FROM spans_named",
    ),
    *(
        "SELECT * FROM default.spans",
        "SELECT * FROM spans FINAL",
        "SELECT * FROM rs_spans",
        "SELECT rs_t.project FROM spans",
    ),
    *("SELECT * FROM spans WHERE project = 'other'", "SELECT * FROM spans WHERE 1 OR project = 'other'"),
    *("WITH 'other' AS project SELECT * FROM spans", "WITH spans AS (SELECT * FROM spans) SELECT * FROM spans"),
    *("SELECT rank FROM metrics WHERE rank IN spans", "SELECT rank FROM metrics WHERE rank IN (spans)"),
    *("SELECT rank FROM metrics WHERE in(rank, spans)", "SELECT 'other' AS project, * FROM spans"),
    *("SELECT dictGet('x', 'y', 1)", "SELECT joinGet('spans', 'name', 1)", "SELECT sleep(3)", "SELECT throwIf(1)"),
    *("SELECT getSetting('readonly')", "SELECT currentUser(), hostName(), version()", "SELECT file('{path}')"),
    *(
        "SELECT * FROM (SELECT * FROM spans) AS rs_t",
        "SELECT COLUMNS('.*') FROM spans",
        "SELECT * APPLY(sum) FROM spans",
    ),
    *("SELECT {{x:Identifier}} FROM spans", "SELECT * FROM {{x:Identifier}}", "SELECT {{project:String}}"),
    *("SELECT 1 /* */ -- \n FROM spans", "SELECT 1 FROM spans --", "SELECT 1 FROM spans /*", "SELECT '\\' FROM spans"),
    *("SELECT * FROM view(SELECT 1)", "SELECT * FROM VALUES('x Int8', 1)", "SELECT * FROM generateRandom('x Int8')"),
    *(
        "EXPLAIN SELECT 1",
        "DESCRIBE TABLE spans",
        "SHOW TABLES",
        "SELECT * FROM cluster('x', system.one)",
        "KILL QUERY",
    ),
    *(
        "SELECT toInt64(name) FROM spans",
        "SELECT count() FROM spans WHERE toInt64(name) = 5",
        "SELECT 10 % rank FROM spans",
    ),
    "WITH RECURSIVE a AS (SELECT 1 AS x UNION ALL SELECT x + 1 FROM a) SELECT * FROM a",
]
"""Statements that are refused, or read nothing that is not the project's own."""

_ODD = [
    *(
        "'",
        '"',
        "`",
        "\\",
        "\\'",
        "''",
        ";",
        "--",
        "/*",
        "*/",
        "#",
        "$$",
        "$a$",
        "\x00",
        "\n",
        "\u202e",
        "é",
        "😀",
        "\ufeff",
    ),
    *(
        "'\u2019",
        "＇",
        "\u00a0",
        "{",
        "}",
        "{a:String}",
        "{s0:String}",
        "(",
        ")",
        "[",
        "]",
        "->",
        "::",
        "@@x",
        "?",
        "!",
    ),
    *("0x1F", "1e999", "18446744073709551616", "-9223372036854775809", "9999999999999999999999", "1_0", ".5.", "NULL"),
    *("NaN", "inf", "-", "- -", "NOT", "~", "SETTINGS", "FORMAT", "INTO OUTFILE", "FINAL", "PREWHERE", "SAMPLE 0.1"),
    *(
        "ARRAY JOIN",
        "GLOBAL",
        "OFFSET",
        "UNION ALL",
        "EXCEPT",
        "rs_spans",
        "rs_t",
        "u_spans",
        "project",
        "landing",
        "system",
    ),
]

_PIECE = re.compile(r"'(?:[^'\\]|\\.)*'|\w+|\s+|.", re.DOTALL)


def pieces(text: str) -> list[str]:
    """A statement's words, signs and texts."""
    return _PIECE.findall(text)


def statements(seeds: Sequence[int], *, path: str, port: int) -> Iterator[str]:
    """One statement for each number.

    Args:
        seeds: The numbers.
        path: A file that must not be read.
        port: A port that must not be dialled.
    """
    attacks = [attack.format(path=path, port=port) for attack in ATTACKS]
    for seed in seeds:
        yield _statement(random.Random(seed), attacks)


def _statement(chance: random.Random, attacks: Sequence[str]) -> str:
    base = chance.choice(HONEST if chance.random() < 0.6 else attacks)
    words = pieces(base)
    for _ in range(chance.choice((0, 1, 1, 1, 2, 2, 3, 6))):
        _change(words, chance, attacks)
    return "".join(words)


def _change(words: list[str], chance: random.Random, attacks: Sequence[str]) -> None:
    """Changes one place: a word is lost, doubled, replaced or wrapped, or a piece of another statement comes in."""
    at = chance.randrange(len(words)) if words else 0
    kind = chance.randrange(7)
    if kind == 0:
        words[at : at + 1] = []
    elif kind == 1:
        words[at:at] = words[at : at + chance.randrange(1, 8)]
    elif kind == 2:
        words[at : at + 1] = [" ", chance.choice(_ODD), " "]
    elif kind == 3:
        words[at:at] = [chance.choice(_ODD)]
    elif kind == 4:
        words[at : at + 1] = ["(", chance.choice(attacks), ")"]
    elif kind == 5:
        other = pieces(chance.choice([*HONEST, *attacks]))
        begin = chance.randrange(len(other))
        words[at : at + chance.randrange(3)] = other[begin : begin + chance.randrange(1, 6)]
    else:
        words[at : at + 1] = [chance.choice(("file", "url", "system", "landing", "sleep", "in", "dictGet", "rs_spans"))]
