from django.db import migrations, models

# The database counts, so that no statement that changes a job can forget to: heartbeats, trials and buttons all do.
COUNT = """
CREATE FUNCTION tuner_tunejob_count_version() RETURNS trigger AS $$
BEGIN
  NEW.version := OLD.version + 1;
  RETURN NEW;
END
$$ LANGUAGE plpgsql;
CREATE TRIGGER tunejob_version BEFORE UPDATE ON tuner_tunejob
  FOR EACH ROW EXECUTE FUNCTION tuner_tunejob_count_version();
"""
FORGET = "DROP TRIGGER tunejob_version ON tuner_tunejob; DROP FUNCTION tuner_tunejob_count_version();"


class Migration(migrations.Migration):

    dependencies = [("tuner", "0016_production")]

    operations = [
        migrations.AddField("tunejob", "version", models.BigIntegerField(db_default=0, editable=False)),
        migrations.RunSQL(COUNT, FORGET),
    ]
