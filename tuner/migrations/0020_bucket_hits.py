"""Launches that were counted as exact before rules told shapes of a bucket apart: each was served its bucket's entry, no more is known."""

from typing import Any

from django.db import migrations

MOVE = """
WITH moved AS (DELETE FROM tuner_servedcount WHERE day = %s AND rule = 'exact' RETURNING *)
INSERT INTO tuner_servedcount (project_id, day, operator, dtype, shape_bucket, gpu, toolkit, rule, entry, launches, snapshot, host,
                               reporter_id, updated)
SELECT project_id, day, operator, dtype, shape_bucket, gpu, toolkit, 'bucket', entry, launches, snapshot, host, reporter_id, updated
FROM moved
ON CONFLICT ON CONSTRAINT servedcount_once DO UPDATE SET
    launches = LEAST(tuner_servedcount.launches::numeric + EXCLUDED.launches, 9223372036854775807),
    updated = GREATEST(tuner_servedcount.updated, EXCLUDED.updated)
"""


def name_bucket_hits(apps: Any, schema_editor: Any) -> None:
    """Rename a day at a time: a report waits for no more than the rows of its own day."""
    with schema_editor.connection.cursor() as cursor:
        cursor.execute("SELECT DISTINCT day FROM tuner_servedcount WHERE rule = 'exact' ORDER BY day")
        for day in cursor.fetchall():
            cursor.execute(MOVE, day)


class Migration(migrations.Migration):

    atomic = False

    dependencies = [("tuner", "0019_gate_hard_to_fool")]

    operations = [migrations.RunPython(name_bucket_hits, migrations.RunPython.noop, hints={"tables": ("tuner_servedcount",)})]
