"""Queries to begin with. They are code: they can be run, opened in the editor and saved under another name, not changed."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Example:
    """`chart`: how its rows are drawn best. What has start_ns and dur_ns, or time_ns and value, is a track too."""

    key: str
    title: str
    about: str
    sql: str
    chart: dict[str, str] = field(default_factory=dict)
    kind: str = "trace"             # of the profiles it is about: "trace" | "counters" | "" = any


EXAMPLES = (
    Example("top-kernels", "Top kernels", "Where the GPU time goes, with each kernel's share.", """\
SELECT short_name, category, launches, total_ns, mean_ns, p95_ns, share_pct
FROM kernel_stats
ORDER BY total_ns DESC
LIMIT 30""", {"kind": "bar", "x": "short_name", "y": "total_ns"}, ""),
    Example("launch-delays", "Launch delays", "Kernels that waited longest after their launch call began; shows as a track.", """\
SELECT r.start_ns, k.start_ns - r.start_ns AS dur_ns, k.name, k.stream, r.name AS launched_by
FROM kernels k
JOIN slices r ON r.profile = k.profile AND r.correlation = k.correlation AND r.category = 'runtime'
ORDER BY dur_ns DESC
LIMIT 1000""", {"kind": "histogram", "x": "dur_ns"}),
    Example("kernels-per-step", "Kernels per step", "Of each marked step of one rank the kernels that it launched, and those that "
            "began in it.", """\
WITH launched AS (
  SELECT k.profile, r.start_ns AS called_ns, k.start_ns, k.dur_ns
  FROM kernels k
  LEFT JOIN slices r ON r.profile = k.profile AND r.correlation = k.correlation AND r.category = 'runtime'
)
SELECT s.step, s.name,
       count(*) FILTER (WHERE called_ns >= s.start_ns AND called_ns < s.start_ns + s.dur_ns) AS launched_in_it,
       count(*) FILTER (WHERE k.start_ns >= s.start_ns AND k.start_ns < s.start_ns + s.dur_ns) AS began_in_it
FROM steps s JOIN launched k ON k.profile = s.profile
GROUP BY s.profile, s.step, s.name
ORDER BY s.step""", {"kind": "bar", "x": "name", "y": "launched_in_it"}),
    Example("idle-gaps", "Idle gaps", "Times in which a GPU did nothing, longest first; shows as a track.", """\
WITH work AS (
  SELECT profile, device, start_ns, start_ns + dur_ns AS end_ns, name
  FROM slices
  WHERE category IN ('compute', 'communication', 'memcpy', 'memset') AND NOT instant
), ordered AS (
  SELECT *, max(end_ns) OVER (PARTITION BY profile, device ORDER BY start_ns, end_ns
                              ROWS BETWEEN UNBOUNDED PRECEDING AND 1 PRECEDING) AS busy_until_ns
  FROM work
)
SELECT busy_until_ns AS start_ns, start_ns - busy_until_ns AS dur_ns, 'before ' || name AS name, device
FROM ordered
WHERE start_ns > busy_until_ns
ORDER BY dur_ns DESC
LIMIT 1000""", {"kind": "histogram", "x": "dur_ns"}),
    Example("slow-operators", "Slowest operators", "Operators of the framework by their time on the CPU.", """\
SELECT name, count(*) AS calls, sum(dur_ns) AS total_ns, max(dur_ns) AS longest_ns, quantile_cont(dur_ns, 0.95) AS p95_ns
FROM slices
WHERE category = 'cpu_op'
GROUP BY name
ORDER BY total_ns DESC
LIMIT 50""", {"kind": "bar", "x": "name", "y": "total_ns"}),
    Example("copies", "Memory copies by kind", "How much is copied in which direction, and how fast.", """\
SELECT name, count(*) AS copies, sum(bytes) AS total_bytes, sum(dur_ns) AS total_ns,
       sum(bytes) / nullif(sum(dur_ns), 0) AS gigabytes_per_s, max(bytes) AS largest_bytes
FROM slices
WHERE category IN ('memcpy', 'memset')
GROUP BY name
ORDER BY total_ns DESC""", {"kind": "bar", "x": "name", "y": "total_bytes"}),
    Example("kernels-in-flight", "Kernels in flight", "How many kernels run at the same moment; shows as a counter track.", """\
SELECT time_ns, sum(sum(change)) OVER (PARTITION BY profile ORDER BY time_ns) AS value
FROM (
  SELECT profile, start_ns AS time_ns, 1 AS change FROM kernels
  UNION ALL
  SELECT profile, start_ns + dur_ns, -1 FROM kernels
)
GROUP BY profile, time_ns
ORDER BY time_ns""", {"kind": "line", "x": "time_ns", "y": "value"}),
    Example("low-counters", "Counters below a threshold", "Launches that use little of the SMs and of memory.", """\
WITH wide AS (
  PIVOT (SELECT profile, launch, kernel, metric, value FROM counters)
  ON metric IN ('sm__throughput.avg.pct_of_peak_sustained_elapsed' AS sm_pct,
                'gpu__compute_memory_throughput.avg.pct_of_peak_sustained_elapsed' AS memory_pct,
                'gpu__time_duration.sum' AS dur_ns)
  USING any_value(value)
)
SELECT kernel, launch, sm_pct, memory_pct, dur_ns
FROM wide
WHERE sm_pct < 40 AND memory_pct < 40
ORDER BY dur_ns DESC""", {"kind": "scatter", "x": "sm_pct", "y": "memory_pct"}, "counters"),
    Example("by-build", "Kernel time by build", "One row per build: choose several profiles, or a tag.", """\
SELECT p.build, count(DISTINCT p.id) AS profiles, sum(k.total_ns) AS total_ns, sum(k.launches) AS launches,
       sum(k.total_ns) / count(DISTINCT p.id) AS ns_per_profile
FROM kernel_stats k
JOIN profiles p ON p.id = k.profile
GROUP BY p.build
ORDER BY min(p.created)""", {"kind": "bar", "x": "build", "y": "ns_per_profile"}, ""),
    Example("least-time", "Steps and their least time", "What a step of each profile takes, what its work needs, and the rest by "
            "part.", """\
SELECT p.name, n.part, any_value(n.title) AS title, sum(n.total_ns) / nullif(sum(n.steps), 0) AS ns_per_step,
       100.0 * sum(n.total_ns) / sum(n.wall_ns) AS share_pct, any_value(p.needed_pct) AS needed_pct
FROM needed n
JOIN profiles p ON p.id = n.profile
GROUP BY p.id, p.name, n.part
ORDER BY p.id, ns_per_step DESC""", {"kind": "bar", "x": "part", "y": "ns_per_step"}),
    Example("lost", "What was not read", "Records of the file that are not in the profile, and why.", """\
SELECT section, reason, records
FROM integrity
WHERE section IN ('not_kept', 'repaired', 'truncated', 'notes')
ORDER BY records DESC NULLS LAST""", {}, ""),
    Example("doubts", "What cannot be", "Launches without GPU work, kernels within kernels, duplicates: what not to build on.", """\
SELECT p.name AS profile, d.label, d.count, d.of_count, d.first_ns, d.last_ns, d.touches
FROM plausibility d
JOIN profiles p ON p.id = d.profile
ORDER BY d.touches DESC, d.count DESC""", {}, ""),
)


def example(key: str) -> Example | None:
    return next((entry for entry in EXAMPLES if entry.key == key), None)
