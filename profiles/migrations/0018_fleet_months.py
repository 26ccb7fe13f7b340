from django.db import migrations, models

# the sums of months, as `profiles.fleet.tables` describes them
FACTS = (
    'CREATE TABLE fleet_kernels_month (at integer NOT NULL, signature bigint NOT NULL, context bigint NOT NULL, launches '
    'bigint NOT NULL DEFAULT 0, total_ns bigint NOT NULL DEFAULT 0, estimate_launches double precision NOT NULL DEFAULT 0, '
    'estimate_ns double precision NOT NULL DEFAULT 0, square double precision NOT NULL DEFAULT 0, min_ns bigint NOT NULL, '
    'max_ns bigint NOT NULL, bucket smallint[] NOT NULL, count bigint[] NOT NULL) PARTITION BY RANGE (at)',
    'CREATE INDEX fleet_kernels_month_signature ON fleet_kernels_month (signature, at)',
    'CREATE INDEX fleet_kernels_month_context ON fleet_kernels_month (context, at)',
    'CREATE INDEX fleet_kernels_month_at ON fleet_kernels_month USING brin (at)',
    'CREATE TABLE fleet_totals_month (at integer NOT NULL, kernel bigint NOT NULL, gpu_model bigint NOT NULL, launches '
    'bigint NOT NULL DEFAULT 0, total_ns bigint NOT NULL DEFAULT 0, estimate_launches double precision NOT NULL DEFAULT 0, '
    'estimate_ns double precision NOT NULL DEFAULT 0, square double precision NOT NULL DEFAULT 0, min_ns bigint NOT NULL, '
    'max_ns bigint NOT NULL, bucket smallint[] NOT NULL, count bigint[] NOT NULL) PARTITION BY RANGE (at)',
    'CREATE INDEX fleet_totals_month_kernel ON fleet_totals_month (kernel, at)',
    'CREATE INDEX fleet_totals_month_at ON fleet_totals_month USING brin (at)',
    'CREATE TABLE fleet_gpus_month (at integer NOT NULL, gpu bigint NOT NULL, context bigint NOT NULL, rank bigint NOT '
    'NULL, launches bigint NOT NULL DEFAULT 0, total_ns bigint NOT NULL DEFAULT 0, estimate_launches double precision NOT '
    'NULL DEFAULT 0, estimate_ns double precision NOT NULL DEFAULT 0, square double precision NOT NULL DEFAULT 0, windows '
    'bigint NOT NULL DEFAULT 0, observed_ns bigint NOT NULL DEFAULT 0, wall_ns bigint NOT NULL DEFAULT 0, min_ns bigint NOT'
    ' NULL, max_ns bigint NOT NULL, bucket smallint[] NOT NULL, count bigint[] NOT NULL) PARTITION BY RANGE (at)',
    'CREATE INDEX fleet_gpus_month_gpu ON fleet_gpus_month (gpu, at)',
    'CREATE INDEX fleet_gpus_month_context ON fleet_gpus_month (context, at)',
    'CREATE INDEX fleet_gpus_month_at ON fleet_gpus_month USING brin (at)',
    'CREATE TABLE fleet_gpu_kernels_month (at integer NOT NULL, gpu bigint NOT NULL, signature bigint NOT NULL, context '
    'bigint NOT NULL, launches bigint NOT NULL DEFAULT 0, total_ns bigint NOT NULL DEFAULT 0, estimate_launches double '
    'precision NOT NULL DEFAULT 0, estimate_ns double precision NOT NULL DEFAULT 0, square double precision NOT NULL '
    'DEFAULT 0, log_sum double precision NOT NULL DEFAULT 0) PARTITION BY RANGE (at)',
    'CREATE INDEX fleet_gpu_kernels_month_gpu ON fleet_gpu_kernels_month (gpu, at)',
    'CREATE INDEX fleet_gpu_kernels_month_signature ON fleet_gpu_kernels_month (signature, at)',
    'CREATE INDEX fleet_gpu_kernels_month_context ON fleet_gpu_kernels_month (context, at)',
    'CREATE INDEX fleet_gpu_kernels_month_at ON fleet_gpu_kernels_month USING brin (at)',
    'CREATE TABLE fleet_telemetry_month (at integer NOT NULL, gpu bigint NOT NULL, minutes bigint NOT NULL DEFAULT 0, '
    'throttle_s double precision NOT NULL DEFAULT 0, thermal_s double precision NOT NULL DEFAULT 0, xid_errors double '
    'precision NOT NULL DEFAULT 0, ecc_errors double precision NOT NULL DEFAULT 0, sum_sm_pct double precision NOT NULL '
    'DEFAULT 0, sum_tensor_pct double precision NOT NULL DEFAULT 0, sum_dram_pct double precision NOT NULL DEFAULT 0, '
    'sum_busy_pct double precision NOT NULL DEFAULT 0, sum_power_w double precision NOT NULL DEFAULT 0, sum_sm_mhz double '
    'precision NOT NULL DEFAULT 0, sum_memory_mhz double precision NOT NULL DEFAULT 0, sum_temperature_c double precision '
    'NOT NULL DEFAULT 0, sum_memory_used_bytes double precision NOT NULL DEFAULT 0, sum_memory_bytes double precision NOT '
    'NULL DEFAULT 0, n_sm_pct bigint NOT NULL DEFAULT 0, n_tensor_pct bigint NOT NULL DEFAULT 0, n_dram_pct bigint NOT NULL'
    ' DEFAULT 0, n_busy_pct bigint NOT NULL DEFAULT 0, n_power_w bigint NOT NULL DEFAULT 0, n_sm_mhz bigint NOT NULL '
    'DEFAULT 0, n_memory_mhz bigint NOT NULL DEFAULT 0, n_temperature_c bigint NOT NULL DEFAULT 0, n_memory_used_bytes '
    'bigint NOT NULL DEFAULT 0, n_memory_bytes bigint NOT NULL DEFAULT 0, n_throttle_s bigint NOT NULL DEFAULT 0, '
    'n_thermal_s bigint NOT NULL DEFAULT 0, n_xid_errors bigint NOT NULL DEFAULT 0, n_ecc_errors bigint NOT NULL DEFAULT 0)'
    ' PARTITION BY RANGE (at)',
    'CREATE INDEX fleet_telemetry_month_gpu ON fleet_telemetry_month (gpu, at)',
    'CREATE INDEX fleet_telemetry_month_at ON fleet_telemetry_month USING brin (at)',
    'CREATE TABLE fleet_contexts_month (at integer NOT NULL, context bigint NOT NULL, launches bigint NOT NULL DEFAULT 0, '
    'total_ns bigint NOT NULL DEFAULT 0, estimate_launches double precision NOT NULL DEFAULT 0, estimate_ns double '
    'precision NOT NULL DEFAULT 0, square double precision NOT NULL DEFAULT 0, windows bigint NOT NULL DEFAULT 0, '
    'observed_ns bigint NOT NULL DEFAULT 0, wall_ns bigint NOT NULL DEFAULT 0, min_ns bigint NOT NULL, max_ns bigint NOT '
    'NULL, bucket smallint[] NOT NULL, count bigint[] NOT NULL) PARTITION BY RANGE (at)',
    'CREATE INDEX fleet_contexts_month_context ON fleet_contexts_month (context, at)',
    'CREATE INDEX fleet_contexts_month_at ON fleet_contexts_month USING brin (at)',
    'CREATE INDEX fleet_totals_month_sums ON fleet_totals_month (at, kernel, gpu_model) INCLUDE (launches, total_ns, '
    'estimate_launches, estimate_ns, square, min_ns, max_ns)',
    'CREATE INDEX fleet_contexts_month_sums ON fleet_contexts_month (at, context) INCLUDE (launches, total_ns, '
    'estimate_launches, estimate_ns, square, windows, observed_ns, wall_ns, min_ns, max_ns)',
)

_ESTIMATES = ("estimate_launches", "estimate_ns", "square")
# kernels of single GPUs: estimates by how their GPU was watched in that hour or day; the square is the largest that it can be
SCALED = tuple(sql for level in ("hour", "day") for sql in (
    f"ALTER TABLE fleet_gpu_kernels_{level} "
    + ", ".join(f"ADD COLUMN {name} double precision NOT NULL DEFAULT 0" for name in _ESTIMATES),
    f"UPDATE fleet_gpu_kernels_{level} SET estimate_launches = launches, estimate_ns = total_ns, square = total_ns::double precision ^ 2",
    f"UPDATE fleet_gpu_kernels_{level} k SET estimate_launches = w * launches, estimate_ns = w * total_ns, square = (w * total_ns) ^ 2 "
    f"FROM (SELECT at, gpu, context, sum(wall_ns)::double precision / sum(observed_ns) AS w FROM fleet_gpus_{level} "
    f"GROUP BY at, gpu, context HAVING sum(observed_ns) > 0) g WHERE g.at = k.at AND g.gpu = k.gpu AND g.context = k.context"))

SIMULATED = tuple(f"UPDATE profiles_fleetgpu SET simulated = true WHERE id IN (SELECT gpu FROM fleet_gpus_{level} f "
                  "JOIN profiles_fleetcontext c ON c.id = f.context WHERE c.simulated)" for level in ("hour", "day"))


class Migration(migrations.Migration):

    dependencies = [
        ('profiles', '0017_fleet_captures'),
    ]

    operations = [
        migrations.RunSQL(list(SCALED), [f"ALTER TABLE fleet_gpu_kernels_{level} DROP COLUMN {name}"
                                         for level in ("hour", "day") for name in _ESTIMATES]),
        migrations.CreateModel(
            name='FleetMonth',
            fields=[
                ('month', models.DateField(primary_key=True, serialize=False)),
                ('rolled', models.DateTimeField()),
                ('closed', models.DateTimeField(null=True)),
            ],
        ),
        migrations.AddField(
            model_name='fleetgpu',
            name='simulated',
            field=models.BooleanField(default=False),
        ),
        migrations.RunSQL(list(SIMULATED), migrations.RunSQL.noop),
        migrations.AddField(
            model_name='fleetday',
            name='closed',
            field=models.DateTimeField(null=True),
        ),
        migrations.RunSQL(list(FACTS), [f"DROP TABLE {sql.split()[2]}" for sql in FACTS if sql.startswith("CREATE TABLE")]),
    ]
