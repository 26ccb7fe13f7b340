"""The tables that a query sees: their names, columns, units and examples. This is the promise; `profiles.sql.views` keeps it
over whatever the store's files look like, so that a saved query outlives a change of the stored form."""

from __future__ import annotations

from dataclasses import dataclass, fields

from profiles.analysis.core.kernels import KernelRow
from profiles.ingest.trace import Category

CATEGORIES = tuple(category.name.lower() for category in Category)


@dataclass(frozen=True)
class Column:
    """`type` as DuckDB names it; times are ns since the trace's first record, missing is NULL."""

    name: str
    type: str
    about: str


@dataclass(frozen=True)
class Table:
    name: str
    about: str
    columns: tuple[Column, ...]
    example: str


_PROFILE = Column("profile", "BIGINT", "id of the profile: joins with profiles.id")


def _columns(text: str) -> tuple[Column, ...]:
    """One column per line: name, type, what it is. The profile's id comes first in every table."""
    lines = [line.split(maxsplit=2) for line in text.strip().splitlines()]
    return (_PROFILE, *(Column(name, kind, about) for name, kind, about in lines))


_TIMES = """
start_ns BIGINT ns since the trace's first record
dur_ns BIGINT ns
"""
_LAUNCH = """
grid_x INTEGER blocks
grid_y INTEGER blocks
grid_z INTEGER blocks
block_x INTEGER threads
block_y INTEGER threads
block_z INTEGER threads
registers_per_thread INTEGER registers
smem_bytes BIGINT bytes per block, static and dynamic
"""
_SLICE = f"""
id BIGINT id of the slice, as in the timeline's address
{_TIMES.strip()}
name VARCHAR full name
category VARCHAR {", ".join(CATEGORIES)}
track INTEGER id of its track: joins with tracks.id
depth SMALLINT nesting within the track, from 0
instant BOOLEAN a moment without duration
correlation BIGINT same number in the launch call and its GPU work
external_id BIGINT same number in the operator and its GPU work
device INTEGER index of the GPU
stream BIGINT number of the stream
{_LAUNCH.strip()}
occupancy_pct FLOAT 0-100, as the file states it
bytes BIGINT bytes moved by a copy, a set or a collective
args VARCHAR remaining arguments as JSON text: args ->> '$.name'
"""

TABLES = (
    Table("slices", "Everything that the timeline draws: kernels, copies, runtime calls, operators, annotations.", _columns(_SLICE),
          "SELECT name, count(*) AS n, sum(dur_ns) AS total_ns FROM slices WHERE category = 'cpu_op' GROUP BY name "
          "ORDER BY total_ns DESC"),
    Table("kernels", "The slices that are GPU kernels: categories compute and communication.", _columns(_SLICE),
          "SELECT name, avg(occupancy_pct) FROM kernels GROUP BY name"),
    Table("launches", "Kernel launches of traces and of counter reports, ordered by kernel, then by start.", _columns(f"""
name VARCHAR full name of the kernel
launch BIGINT position among the profile's kernels, by start; in counter reports the launch's number: joins with counters.launch
dur_ns DOUBLE ns; NULL where counters were taken without it
{_LAUNCH.strip()}
"""), "SELECT name, min(dur_ns), max(dur_ns) FROM launches GROUP BY name HAVING count(*) > 10"),
    Table("kernel_stats", "One row per kernel, as on the profile's page; also where a tool gave sums and no launches.",
          (_PROFILE, *(Column(column.name, **column.metadata) for column in fields(KernelRow) if column.metadata)),
          "SELECT build, sum(total_ns) FROM kernel_stats JOIN profiles ON profiles.id = profile GROUP BY build"),
    Table("kernel_shapes", "Kernels by what they worked on: one row per kernel, grid, block and operator around the launch.",
          _columns("""
name VARCHAR full name of the kernel
short_name VARCHAR without templates and arguments
grid VARCHAR blocks, 512×1×1; empty where it is not known, or the row is of all further shapes
block VARCHAR threads
operator VARCHAR framework operator around the longest launch
dims VARCHAR its input shapes, as the trace states them
dtype VARCHAR its input types
shapes INTEGER how many shapes the row holds: more than one in the row of all further ones
launches BIGINT count
total_ns BIGINT ns
mean_ns DOUBLE ns
p50_ns DOUBLE ns, of all its launches
p95_ns DOUBLE ns, of all its launches
min_ns BIGINT ns
max_ns BIGINT ns
share_pct DOUBLE 0-100, of the profile's summed kernel time
roof_pct DOUBLE share of its own roof, 0-100; NULL without counters
"""), "SELECT build, short_name, dims, p50_ns, p95_ns, s.launches FROM kernel_shapes s JOIN profiles ON profiles.id = profile "
          "ORDER BY total_ns DESC"),
    Table("work", "FLOP and least bytes of compute kernels from recorded shapes: a row per kernel and shape, the 1,000 longest.",
          _columns("""
kernel VARCHAR full name
operator VARCHAR framework operator that launched it; empty where the trace tells none
sizes VARCHAR of the problem: 2048 × 12288 × 4096
shapes VARCHAR as the operator was given them
dtype VARCHAR element type of the operands
kind VARCHAR product, attention, convolution, norm, softmax, elementwise, reduction, movement, optimizer, fused
precision VARCHAR whose ceiling holds
gpu VARCHAR model
launches BIGINT count
total_ns BIGINT ns of all launches
flop BIGINT of all launches, a multiply-add is two; NULL where unknown
min_bytes BIGINT of all launches, each input read once and each output written once; NULL where unknown
flop_per_byte DOUBLE intensity
class VARCHAR memory or compute, by intensity against the ridge point; empty is unknown
flop_s DOUBLE FLOP per second
bytes_s DOUBLE least bytes per second
floor_ns DOUBLE ns of all launches at the ceiling
roof_pct DOUBLE share of the ceiling; above 100 it cannot be
ceiling VARCHAR which it is, and from where
beyond VARCHAR set above 100 %: what it is called
basis VARCHAR from shapes, typed; empty where the trace has no shapes
part_of BOOLEAN it helps the operator, whose work another kernel does
"""), "SELECT kernel, sizes, roof_pct FROM work WHERE roof_pct < 50 ORDER BY total_ns DESC"),
    Table("needed", "What the time of each GPU's steps was for: the rows of a GPU add up to wall_ns.", _columns("""
gpu INTEGER index of the GPU
label VARCHAR as pages call it
model VARCHAR of the GPU
steps INTEGER marked steps; 0: its whole run
wall_ns BIGINT ns of all of them
needed_pct DOUBLE share of wall_ns that the work needs at least, 0-100; NULL where that is not known
part VARCHAR needed, slower, not_known, communication, copies, idle, or a kind of avoidable.kind
title VARCHAR of a kind; NULL of the other parts
total_ns BIGINT ns of the part
"""), "SELECT build, part, sum(total_ns) / sum(steps) AS ns_per_step FROM needed n JOIN profiles p ON p.id = n.profile "
          "GROUP BY ALL ORDER BY ns_per_step DESC"),
    Table("avoidable", "Work that need not be, by kind, with what its removal would win.", _columns("""
kind VARCHAR unread_logits, scores_in_memory, passes, …
title VARCHAR as pages call it
text VARCHAR what was found, as a sentence
launches BIGINT launches and copies of all places
takes_ns BIGINT ns of GPU time
gone_ns BIGINT ns of it that would go, in the middle
gain_least_ns BIGINT ns that the run gets shorter, least
gain_most_ns BIGINT most
gain_step_least_ns DOUBLE the same a step of one GPU, least
gain_step_most_ns DOUBLE most
certain BOOLEAN false where it only looks so
change VARCHAR one line of code
"""), "SELECT kind, count(*) AS profiles, sum(gone_ns) AS gone_ns FROM avoidable GROUP BY kind ORDER BY gone_ns DESC"),
    Table("slow_kernels", "Kernels that the work needs and that are slower than their ceiling, the 50 that lose most.", _columns("""
kernel VARCHAR full name
short_name VARCHAR without templates and arguments
operator VARCHAR framework operator that launched it
sizes VARCHAR of the problem: 2048 × 12288 × 4096
launches BIGINT within the steps
takes_ns BIGINT ns of all of them
least_ns BIGINT ns at the ceilings
lost_ns BIGINT the difference
of_ceiling_pct DOUBLE share of the ceiling, 0-100
choice VARCHAR what else is tried in its place; empty unknown
tuned VARCHAR operator of the tuner that has this problem; NULL where none has
"""), "SELECT short_name, sizes, lost_ns, tuned FROM slow_kernels ORDER BY lost_ns DESC"),
    Table("needed_ranges", "GPU time of modules or ranges within the steps beside its least time; own times add up.", _columns("""
kind VARCHAR module, or range where no module is recorded
name VARCHAR of the module or range; empty: outside of any
within VARCHAR names around it, outermost first
parent INTEGER position of the one around it among the profile's rows, from 0; -1 none
launches BIGINT GPU work of it and of inner ones
takes_ns BIGINT ns, inner ones included
least_ns BIGINT ns that its work needs at least; NULL unknown
unknown_ns BIGINT ns of kernels whose work is not known, without a part in least_ns
own_takes_ns BIGINT ns outside of inner ones
own_least_ns BIGINT ns; NULL unknown
"""), "SELECT name, takes_ns, least_ns, 100.0 * least_ns / takes_ns AS needed_pct FROM needed_ranges ORDER BY takes_ns DESC"),
    Table("layer_parts", "Kernel time of the parts of a transformer layer within the steps beside their least time.", _columns("""
part VARCHAR QKV projection, attention, …; empty: no part of a layer
layers INTEGER passed forward in the trace, all GPUs together
launches BIGINT of all layers
takes_ns BIGINT ns of all layers
least_ns BIGINT ns that the work needs at least; NULL unknown
unknown_ns BIGINT ns of kernels whose work is not known, without a part in least_ns
"""), "SELECT part, takes_ns / layers AS ns_per_layer, least_ns / layers AS least_ns_per_layer FROM layer_parts ORDER BY 2 DESC"),
    Table("tracks", "Threads, streams and counters of a timeline.", _columns("""
id INTEGER number of the track within its profile
kind VARCHAR thread, stream, counter or other
name VARCHAR as the timeline shows it
group_name VARCHAR process or GPU that it is drawn under
pid VARCHAR process, as the file names it
tid VARCHAR thread, as the file names it
device INTEGER index of the GPU
stream BIGINT number of the stream
unit VARCHAR of a counter's values
slices BIGINT how many slices it holds
samples BIGINT how many samples it holds
"""), "SELECT kind, count(*), sum(slices) FROM tracks GROUP BY kind"),
    Table("samples", "Values of counters over time: memory, GPU metrics, queue depth.", _columns("""
track INTEGER id of the counter's track: joins with tracks.id
time_ns BIGINT ns since the trace's first record
value DOUBLE in the unit of its track; null where from here on it is not known
"""), "SELECT t.name, max(value) FROM samples s JOIN tracks t ON t.id = s.track AND t.profile = s.profile GROUP BY t.name"),
    Table("flows", "Ends of arrows that correlation ids do not already say: forward to backward, flows of the user.", _columns("""
flow BIGINT number of the arrow: its ends share it
kind VARCHAR as the file names it
track INTEGER where it ends: joins with tracks.id
time_ns BIGINT ns since the trace's first record
is_end BOOLEAN false where it begins
"""), "SELECT kind, count(*) FROM flows GROUP BY kind"),
    Table("steps", "Steps of training or serving that the trace marks.", _columns(f"""
step INTEGER position, from 0
name VARCHAR as the trace marks it
{_TIMES.strip()}
"""), "SELECT name, dur_ns FROM steps ORDER BY dur_ns DESC"),
    Table("counters", "Hardware counters of counter reports, one row per launch and metric.", _columns("""
launch INTEGER number of the launch in the report
kernel VARCHAR full name
metric VARCHAR as Nsight Compute names it
unit VARCHAR base unit: ns, bytes, hertz, percent
value DOUBLE NULL where the metric is a word
text VARCHAR the word
"""), "SELECT kernel, value FROM counters WHERE metric = 'gpu__time_duration.sum' ORDER BY value DESC"),
    Table("instructions", "SASS of kernels in counter reports and what was counted: a row per launch and instruction.", _columns("""
launch INTEGER number of the launch in the report
kernel VARCHAR full name
offset_bytes BIGINT from the kernel's first instruction
sass VARCHAR as NVIDIA's reader disassembles it
file VARCHAR source file; NULL without line information
line INTEGER in that file
samples DOUBLE stall samples in every state
executed DOUBLE warp instructions
threads_executed DOUBLE thread instructions, predicated-off ones left out
global_sectors DOUBLE 32-byte sectors asked of L2; NULL where it is no global access
excess_sectors DOUBLE of them beyond coalesced accesses
shared_wavefronts DOUBLE passes through shared memory; NULL where it is no shared access
excess_wavefronts DOUBLE of them bank conflicts
"""), "SELECT file, line, sum(samples) FROM instructions WHERE launch = 0 GROUP BY ALL ORDER BY 3 DESC"),
    Table("source_lines", "Text of the source files that counter reports hold.", _columns("""
file VARCHAR as in instructions
line INTEGER from 1
text VARCHAR the line
"""), "SELECT i.line, text, sum(samples) FROM instructions i JOIN source_lines USING (profile, file, line) GROUP BY ALL"),
    Table("integrity", "What became of every record of the file: read = kept + all rows of section not_kept.", _columns("""
section VARCHAR read, kept, kinds, not_kept, repaired, remarks, truncated or notes
reason VARCHAR kind, reason or sentence
records BIGINT how many; NULL for sentences
"""), "SELECT section, sum(records) FROM integrity GROUP BY section"),
    Table("plausibility", "What cannot be in a trace, or is not all there: a row per kind.", _columns("""
kind VARCHAR launch_without_work, kernel_inside_kernel, duplicates, work_before_call, second_document, …
label VARCHAR what it is, in words
count BIGINT how many
of_count BIGINT of how many; NULL where nothing is counted beside
first_ns BIGINT of the first, ns since the trace's first record; NULL where unknown
last_ns BIGINT of the last
doubtful_ns BIGINT time that is in doubt; NULL where it is none
touches BOOLEAN whether the result is touched: then the overview says it first
sentence VARCHAR as the overview says it
"""), "SELECT profile, kind, count, sentence FROM plausibility WHERE touches"),
    Table("metadata", "What the file states about itself and the machine, and what was asked of the upload.", _columns("""
key VARCHAR name, dotted where nested
value VARCHAR as text; lists and objects as JSON
"""), "SELECT key, value FROM metadata WHERE key LIKE '%version%'"),
    Table("cells", "Tables of statistics without a timeline (nsys stats, CUTLASS, …), one row per cell.", _columns("""
title VARCHAR of the table
line INTEGER row of the table, from 0
column_name VARCHAR as the tool names it, in base units
unit VARCHAR ns, bytes, pct, count, …
value DOUBLE NULL where the cell is a word
text VARCHAR the word
"""), "SELECT title, count(DISTINCT line) FROM cells GROUP BY title"),
    Table("profiles", "The profiles that this query was given.", (
        Column("id", "BIGINT", "id of the profile"), Column("name", "VARCHAR", "as the list shows it"),
        Column("build", "VARCHAR", "git sha or name of the build"),
        Column("model", "VARCHAR", "as it was uploaded"),
        Column("tags", "VARCHAR[]", "as they were given"), Column("gpu", "VARCHAR", "name"),
        Column("format", "VARCHAR", "of the file"),
        Column("kind", "VARCHAR", "trace, counters or summary"), Column("created", "TIMESTAMP", "UTC"),
        Column("wall_ns", "BIGINT", "ns from first to last record of work"),
        Column("busy_ns", "BIGINT", "ns in which a GPU worked"),
        Column("kernel_ns", "BIGINT", "ns, summed over kernels"), Column("launches", "BIGINT", "kernels launched"),
        Column("needed_pct", "DOUBLE", "the grade: share of the steps' time that the work needs at least, 0-100; NULL unknown")),
        "SELECT build, max(created) FROM profiles GROUP BY build"),
)
NAMES = tuple(table.name for table in TABLES)


def table(name: str) -> Table:
    return next(entry for entry in TABLES if entry.name == name)
