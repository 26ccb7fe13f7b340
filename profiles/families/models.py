"""Rows of kernel families: what counts as one kernel over profiles, builds and library versions, who said so, and what the
newest builds changed. `profiles.models` gives them to everybody."""

from __future__ import annotations

from django.conf import settings
from django.db import models
from django.db.models.functions import MD5

from workers.scope import BelowProject, OfProject


class KernelFamily(OfProject):
    """One kernel as people think of it. `FamilyRule` says what belongs to it."""

    name = models.CharField(max_length=200)                 # shown; automatic until somebody renames it
    function = models.CharField(max_length=200)             # analysis.identity.Identity of its first member
    op = models.CharField(max_length=24, blank=True)        # "matmul", "elementwise" …; "" is unknown
    dtype = models.CharField(max_length=16, blank=True)     # as the name states it; "" where it does not
    merged_into = models.ForeignKey("self", null=True, on_delete=models.SET_NULL, related_name="merged")
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["name", "id"]
        verbose_name_plural = "kernel families"

    def __str__(self) -> str:
        return self.name


class FamilyRule(OfProject):
    """What belongs to a family: a key of `analysis.identity`, or one full name, which goes before every key."""

    class Kind(models.TextChoices):
        KEY = "key"
        NAME = "name"

    kind = models.CharField(max_length=4, choices=Kind)
    value = models.TextField()
    family = models.ForeignKey(KernelFamily, on_delete=models.CASCADE, related_name="rules")

    class Meta:
        # by digest: a btree row ends at 2704 bytes, C++ template names do not
        constraints = [models.UniqueConstraint("project", "kind", MD5("value"), name="familyrule_once")]

    def __str__(self) -> str:
        return self.value


class FamilyEdit(BelowProject):
    """What somebody changed: kept for good, undone by another change of this row."""

    project_path = "family__project"

    class Kind(models.TextChoices):
        MERGE = "merge"         # everything of `family` went to `other`
        SPLIT = "split"         # some names of `family` went to `other`
        RENAME = "rename"

    kind = models.CharField(max_length=8, choices=Kind)
    family = models.ForeignKey(KernelFamily, on_delete=models.CASCADE, related_name="edits")
    other = models.ForeignKey(KernelFamily, null=True, on_delete=models.CASCADE, related_name="edits_in")
    changes = models.JSONField(default=dict)        # {"rules": [ids], "before": …, "names": […]}: what undoing needs
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")
    created = models.DateTimeField(auto_now_add=True)
    undone = models.DateTimeField(null=True)
    undone_by = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL, related_name="+")

    class Meta:
        ordering = ["-created", "-id"]

    def __str__(self) -> str:
        return f"{self.kind} {self.family}"


class FamilyNote(BelowProject):
    """What somebody wrote about a kernel, for everybody who opens its page."""

    project_path = "family__project"

    family = models.ForeignKey(KernelFamily, on_delete=models.CASCADE, related_name="notes")
    author = models.ForeignKey(settings.AUTH_USER_MODEL, null=True, on_delete=models.SET_NULL)
    text = models.TextField()
    created = models.DateTimeField(auto_now_add=True)

    class Meta:
        ordering = ["created", "id"]
        permissions = [("moderate_familynote", "Can delete notes of others about kernels")]

    def __str__(self) -> str:
        return self.text[:60]


class KernelShape(BelowProject):
    """Launches of one kernel of one profile with one grid, block and problem: between the kernel table and the single launch."""

    project_path = "kernel__profile__project"

    kernel = models.ForeignKey("profiles.KernelStat", on_delete=models.CASCADE, related_name="shapes")
    grid = models.CharField(max_length=60, blank=True)      # "512×1×1"; "": not known, or all further shapes
    block = models.CharField(max_length=60, blank=True)
    bucket = models.SmallIntegerField(null=True)            # nearest power of two of all threads (log2); null: not known
    shapes = models.IntegerField(default=1)                 # more than one: the row of all further shapes
    launches = models.BigIntegerField()
    total_ns = models.BigIntegerField()
    min_ns = models.BigIntegerField()
    max_ns = models.BigIntegerField()
    p50_ns = models.FloatField(null=True)                   # exact, of these launches; null: made before they were kept
    p95_ns = models.FloatField(null=True)
    floor_ns = models.FloatField(null=True)                 # least time of one launch by its shapes and the GPU's roofs
    flop = models.FloatField(null=True)                     # of one launch of a product: by its dimensions; of counters counted
    index = models.BigIntegerField(null=True)               # of the longest launch, among the kernels of its profile
    slice_id = models.BigIntegerField(null=True)            # of the longest launch on the timeline
    skip = models.BigIntegerField(null=True)                # launches before it that ncu's name filter matches as well
    operator = models.CharField(max_length=120, blank=True)     # framework operator around the launches
    dims = models.CharField(max_length=300, blank=True)         # its input shapes, as the trace states them
    dtype = models.CharField(max_length=60, blank=True)         # its input types
    tune = models.JSONField(default=dict, blank=True)           # query of a filled-in tune form, {} where none
    roof_pct = models.FloatField(null=True)                     # of its own roof reached, 0-100; null: no counters
    roof_side = models.CharField(max_length=12, blank=True)     # "memory" | "compute"
    gain_pct = models.FloatField(null=True)                     # largest estimate of NVIDIA's rules, of the run time
    gain_rule = models.CharField(max_length=120, blank=True)

    class Meta:
        ordering = ["-total_ns", "id"]

    def __str__(self) -> str:
        return f"{self.kernel} {self.grid}"


class BuildPair(OfProject):
    """The two newest builds of one model, GPU and kind of profile, compared; made anew when one of them gets a profile."""

    model = models.CharField(max_length=120, blank=True)
    gpu = models.CharField(max_length=120, blank=True)
    kind = models.CharField(max_length=12)
    old_build = models.CharField(max_length=80)
    new_build = models.CharField(max_length=80)
    old_profiles = models.JSONField(default=list)           # ids that were compared
    new_profiles = models.JSONField(default=list)
    verdicts = models.JSONField(default=dict)               # verdict -> kernels
    error = models.TextField(blank=True)                    # why they could not be compared
    version = models.IntegerField(default=0)                # of the comparison: one of another version is made anew
    made = models.DateTimeField(auto_now=True)

    class Meta:
        ordering = ["-made"]
        constraints = [models.UniqueConstraint(fields=["project", "model", "gpu", "kind"], name="buildpair_once")]

    def __str__(self) -> str:
        return f"{self.old_build} → {self.new_build}"


class BuildChange(BelowProject):
    """One kernel (and shape) that a pair of builds changed beyond its noise."""

    project_path = "pair__project"

    pair = models.ForeignKey(BuildPair, on_delete=models.CASCADE, related_name="changes")
    kernel = models.ForeignKey("profiles.KernelStat", null=True, on_delete=models.CASCADE, related_name="changes")    # new
    name = models.CharField(max_length=200)
    shape = models.CharField(max_length=160, blank=True)    # "1 of 2: 4096×4096, 4096×1024" where one kernel has several rows
    verdict = models.CharField(max_length=12)               # "slower" | "faster"
    old_mean_ns = models.FloatField()
    new_mean_ns = models.FloatField()
    old_launches = models.BigIntegerField()
    new_launches = models.BigIntegerField()
    delta_ns = models.FloatField()
    change_pct = models.FloatField()
    noise_pct = models.FloatField(null=True)
    why = models.TextField(blank=True)                      # the cause by counters, "" where they do not tell it
    order = models.IntegerField(default=0)

    class Meta:
        ordering = ["order", "id"]

    def __str__(self) -> str:
        return f"{self.name} {self.verdict}"
