"""Pages and API routes of tune jobs, the config cache and the gate."""

from django.urls import path

from tuner.bring.checks import api as bring_api
from tuner.bring.checks import pages as bring_pages
from tuner.bring.own import api as own_api
from tuner.bring.own import pages as own_pages
from tuner.cache.browse import api as browse_api
from tuner.cache.browse import pages as browse_pages
from tuner.cache.compiled import api as compiled_api
from tuner.cache.exchange import api as exchange_api
from tuner.cache.exchange import pages as exchange_pages
from tuner.cache.serve import api as serve_api
from tuner.cache.serve import pages as serve_pages
from tuner.candidates import api as candidates_api
from tuner.candidates import pages as candidates_pages
from tuner.clocks import api as clocks_api
from tuner.clocks import pages as clocks_pages
from tuner.gate.channels import api as channel_api
from tuner.gate.channels import pages as channel_pages
from tuner.gate.code import api as code_api
from tuner.gate.code import pages as code_pages
from tuner.gate.environment_pages import api as environment_api
from tuner.gate.environment_pages import pages as environment_pages
from tuner.gate.history import api as history_api
from tuner.gate.history import pages as history_pages
from tuner.gate.production import api as production_api
from tuner.gate.production import pages as production_pages
from tuner.gate.suite_pages import api as suite_api
from tuner.gate.suite_pages import pages as suite_pages
from tuner.gate.suite_pages import runs_api
from tuner.gate.verdicts import api, pages
from tuner.gate.verdicts import api as verdicts_api
from tuner.gate.verdicts import pages as verdicts_pages
from tuner.jobs import api as jobs_api
from tuner.jobs import check_api, control_api, new_pages, snapshot_pages
from tuner.jobs import pages as jobs_pages
from tuner.revalidation import pages as revalidation_pages
from tuner.spaces import api as spaces_api
from tuner.team import api as team_api
from tuner.team import pages as team_pages

urlpatterns = [
    # builds
    path("builds/", history_pages.build_list, name="build-list"),                    # ?suite=&on=&branch=&kernel=
    path("builds/<path:name>/", history_pages.build_detail, name="build"),            # ?on=&against=
    path("bisect/measure/", history_pages.bisect_ask, name="bisect-measure"),  # POST
    path("regressions/", history_pages.regression_list, name="regression-list"),             # ?state=&suite=&gpu=&build=&q=
    path("regressions/<int:pk>/", history_pages.regression_detail, name="regression"),
    path("regressions/<int:pk>/counters/", verdicts_pages.regression_counters, name="regression-counters"),  # POST
    path("regressions/<int:pk>/change/", history_pages.regression_change, name="regression-change"),  # POST
    # production
    path("fleet/regressions/", production_pages.production_list, name="production-list"),          # ?state=&gpu_model=&build=&q=
    path("fleet/regressions/<int:pk>/", production_pages.production_detail, name="production-regression"),
    path("fleet/regressions/<int:pk>/change/", production_pages.production_change, name="production-change"),  # POST
    path("fleet/regressions/<int:pk>/guard/", production_pages.production_guard, name="production-guard"),  # POST
    # clocks of GPUs
    path("workers/clocks/", clocks_pages.clock_list, name="gpu-clocks"),
    path("workers/clocks/change/", clocks_pages.clock_change, name="gpu-clocks-change"),  # POST, owners
    # environments
    path("environments/", environment_pages.environments, name="environments"),    # ?suite=&kernel=&runs=&before=&after=
    path("environments/revalidate/", environment_pages.revalidate, name="environments-revalidate"),  # POST
    path("environments/policy/", environment_pages.policy, name="environments-policy"),  # POST, owners
    path("environments/searches/", environment_pages.searches, name="environments-searches"),  # POST, owners
    path("environments/<int:pk>/forget/", environment_pages.forget, name="environment-forget"),  # POST, owners
    # suites
    path("suites/", suite_pages.suite_list, name="suite-list"),
    path("suites/new/", suite_pages.suite_new, name="suite-new"),             # ?operator=…&M=…
    path("suites/apply/", suite_pages.suite_apply, name="suite-apply"),  # POST: a file
    path("suites/<int:pk>/", suite_pages.suite_detail, name="suite"),              # ?gpu=&toolkit=&driver=&recorded=
    path("suites/<int:pk>/edit/", suite_pages.suite_edit, name="suite-edit"),
    path("suites/<int:pk>/kernels/<int:kernel_pk>/", suite_pages.suite_kernel, name="suite-kernel"),
    path("suites/<int:pk>/calibration/", suite_pages.suite_calibration, name="suite-calibration"),
    path("suites/<int:pk>/suite.toml", suite_pages.suite_file, name="suite-file"),
    path("suites/<int:pk>/code/", code_pages.suite_code, name="suite-code"),  # POST: owners, as the next three
    path("suites/<int:pk>/code/try/", code_pages.suite_code_try, name="suite-code-try"),  # POST
    path("suites/<int:pk>/code/try/<int:fetch_pk>/stop/", code_pages.suite_code_stop, name="suite-code-stop"),  # POST
    path("suites/<int:pk>/code/archive/", code_pages.suite_code_archive, name="suite-code-archive"),  # POST
    path("suites/<int:pk>/run/", suite_pages.suite_run, name="suite-run"),  # POST, as the next four
    path("suites/<int:pk>/upload/", suite_pages.suite_upload, name="suite-upload"),
    path("suites/<int:pk>/jobs/<int:job_pk>/stop/", suite_pages.suite_stop, name="suite-stop"),
    path("suites/<int:pk>/switch/", suite_pages.suite_switch, name="suite-switch"),
    path("suites/<int:pk>/delete/", suite_pages.suite_delete, name="suite-delete"),
    # gates
    path("gates/", verdicts_pages.gate_list, name="gate-list"),                        # ?suite=&build=&gpu=&verdict=&status=
    path("gates/new/", verdicts_pages.gate_new, name="gate-new"),                      # ?suite=&build=&against=
    path("gates/<int:pk>/", verdicts_pages.gate_detail, name="gate"),
    path("gates/<int:pk>/kernels/<int:kernel_pk>/", verdicts_pages.gate_kernel, name="gate-kernel"),
    path("gates/<int:pk>/kernels/<int:kernel_pk>/counters/", verdicts_pages.gate_kernel_counters,
         name="gate-kernel-counters"),  # POST
    path("gates/<int:pk>/stop/", verdicts_pages.gate_stop, name="gate-stop"),  # POST
    path("gates/<int:pk>/again/", verdicts_pages.gate_again, name="gate-again"),  # POST
    path("gates/<int:pk>/gone/", verdicts_pages.gate_gone, name="gate-gone"),  # POST
    path("notified/", channel_pages.notified, name="notified"),                     # ?to=3: the messages of one place
    path("notified/add/", channel_pages.notified_create, name="notified-create"),  # POST, as the next three: owners
    path("notified/<int:pk>/", channel_pages.notified_change, name="notified-change"),
    path("notified/<int:pk>/delete/", channel_pages.notified_delete, name="notified-delete"),
    path("notified/deliveries/<int:pk>/again/", channel_pages.delivery_again, name="delivery-again"),
    path("suites/<int:pk>/baselines/", pages.baselines, name="suite-baselines"),      # ?gpu=&toolkit=&driver=
    path("suites/<int:pk>/baselines/change/", pages.baseline_change, name="baseline-change"),  # POST
    # tuner
    path("tune/", jobs_pages.tune_list, name="tune-list"),
    path("tune/new/", new_pages.tune_new, name="tune-new"),
    path("tune/compare/", jobs_pages.tune_compare, name="tune-compare"),
    path("tune/by-worth/", jobs_pages.queue_by_worth, name="tune-by-worth"),  # POST
    path("tune/groups/<int:pk>/", jobs_pages.tune_group, name="tune-group"),
    path("tune/groups/<int:pk>/act/", jobs_pages.tune_group_act, name="tune-group-act"),  # POST
    path("tune/<int:pk>/", snapshot_pages.tune_detail, name="tune"),
    path("tune/<int:pk>/figure/", snapshot_pages.tune_figure, name="tune-figure"),                # ?over=&scale=
    path("tune/<int:pk>/snapshot/", snapshot_pages.tune_snapshot, name="tune-snapshot"),         # ?after=&stamp=
    path("tune/<int:pk>/stop/", jobs_pages.tune_stop, name="tune-stop"),  # POST
    path("tune/<int:pk>/pause/", jobs_pages.tune_pause, name="tune-pause"),  # POST
    path("tune/<int:pk>/resume/", jobs_pages.tune_resume, name="tune-resume"),  # POST
    path("tune/<int:pk>/extend/", jobs_pages.tune_extend, name="tune-extend"),  # POST
    path("tune/<int:pk>/move/", jobs_pages.tune_move, name="tune-move"),  # POST
    path("tune/quarantine/", jobs_pages.quarantine_list, name="quarantine-list"),
    path("tune/quarantine/<int:pk>/lift/", jobs_pages.quarantine_lift, name="quarantine-lift"),  # POST
    path("tune/operators/", team_pages.operator_list, name="operators"),
    path("tune/operators/check/", bring_pages.check_new, name="kernel-check-new"),  # POST: owners
    path("tune/operators/check/<int:pk>/", bring_pages.check_detail, name="kernel-check"),
    path("tune/operators/check/<int:pk>/stop/", bring_pages.check_stop, name="kernel-check-stop"),  # POST, owners
    path("tune/operators/check/<int:pk>/tune/", own_pages.own_tune, name="kernel-check-tune"),  # POST, owners
    path("tune/operators/own/<str:name>/", own_pages.own_detail, name="own-kernel"),
    path("tune/operators/enable/", team_pages.package_enable, name="operator-enable"),  # POST, owners
    path("tune/operators/<int:pk>/", team_pages.package_change, name="operator-package"),  # POST, owners
    path("tune/candidates/", candidates_pages.candidate_list, name="candidate-list"),          # ?operator=&status=&verdict=&review=
    path("tune/candidates/new/", candidates_pages.candidate_new, name="candidate-new"),        # ?operator=&dtype=&M=… or ?parent=
    path("tune/candidates/permit/", candidates_pages.candidate_permit, name="candidate-permit"),  # POST, owners
    path("tune/candidates/<int:pk>/", candidates_pages.candidate_detail, name="candidate"),
    path("tune/candidates/<int:pk>/cancel/", candidates_pages.candidate_cancel, name="candidate-cancel"),  # POST
    path("tune/candidates/<int:pk>/review/", candidates_pages.candidate_review, name="candidate-review"),  # POST, owners
    path("cache/served/", serve_pages.served_list, name="cache-served"),               # ?days=7
    path("cache/", browse_pages.cache_list, name="cache-list"),
    path("cache/<int:pk>/", browse_pages.cache_detail, name="cache"),
    path("cache/<int:pk>/state/", browse_pages.cache_state, name="cache-state"),  # POST
    path("cache/why/", browse_pages.cache_why, name="cache-why"),
    path("cache/revalidate/", revalidation_pages.revalidate, name="cache-revalidate"),  # POST
    path("cache/revalidations/", revalidation_pages.revalidation_list, name="cache-revalidations"),
    path("cache/revalidations/<int:pk>/", revalidation_pages.revalidation, name="cache-revalidation"),
    path("cache/revalidations/<int:pk>/stop/", revalidation_pages.revalidation_stop, name="cache-revalidation-stop"),  # POST
    path("cache/portability/", exchange_pages.cache_portability, name="cache-portability"),
    path("cache/buckets/", exchange_pages.cache_buckets, name="cache-buckets"),
    path("cache/exchange/", exchange_pages.cache_exchange, name="cache-exchange"),
    path("cache/export/", exchange_pages.cache_export, name="cache-export"),
    path("cache/imports/<int:pk>/", exchange_pages.cache_import, name="cache-import"),
    path("cache/imports/<int:pk>/measure/", exchange_pages.cache_import_measure, name="cache-import-measure"),  # POST
    path("cache/imports/<int:pk>/forget/", exchange_pages.cache_import_forget, name="cache-import-forget"),  # POST
    path("tune/<int:pk>/export/<str:kind>/", exchange_pages.trials_export, name="trials-export"),
    # API
    path("api/builds/", history_api.BuildListApi.as_view(), name="api-builds"),
    path("api/builds/bisect/", environment_api.BisectApi.as_view(), name="api-bisect"),     # ?suite=&kernel=&gpu=&good=&bad=
    path("api/environments/", environment_api.EnvironmentsApi.as_view(), name="api-environments"),             # ?suite=&kernel=
    path("api/environments/<int:pk>/", environment_api.EnvironmentApi.as_view(), name="api-environment"),       # DELETE
    path("api/environments/policy/", environment_api.RevalidationPolicyApi.as_view(), name="api-environments-policy"),     # PUT
    path("api/environments/searches/", environment_api.SearchesPolicyApi.as_view(), name="api-environments-searches"),     # PUT
    path("api/environments/revalidate/", environment_api.EnvironmentsRevalidateApi.as_view(), name="api-environments-revalidate"),
    path("api/builds/series/", history_api.SeriesApi.as_view(), name="api-series"),   # ?suite=&kernel=&gpu=&branch=
    path("api/builds/<path:name>/", history_api.BuildApi.as_view(), name="api-build"),            # after what else begins so
    path("api/regressions/", history_api.RegressionListApi.as_view(), name="api-regressions"),
    path("api/regressions/<int:pk>/", history_api.RegressionApi.as_view(), name="api-regression"),
    path("api/fleet/regressions/", production_api.ProductionListApi.as_view(), name="api-production"),
    path("api/fleet/regressions/<int:pk>/", production_api.ProductionApi.as_view(), name="api-production-regression"),
    path("api/tune/", jobs_api.TuneListApi.as_view(), name="api-tune-list"),
    path("api/tune/<int:pk>/", jobs_api.TuneApi.as_view(), name="api-tune"),
    path("api/tune/choices/", jobs_api.TuneChoicesApi.as_view(), name="api-tune-choices"),
    path("api/tune/compare/", jobs_api.TuneCompareApi.as_view(), name="api-tune-compare"),
    path("api/tune/check/", check_api.TuneCheckApi.as_view(), name="api-tune-check"),      # POST, makes nothing
    path("api/tune/space/", spaces_api.TuneSpaceApi.as_view(), name="api-tune-space"),     # POST, makes nothing
    path("api/tune/worth/", jobs_api.TuneWorthApi.as_view(), name="api-tune-worth"),
    path("api/tune/<int:pk>/insight/", jobs_api.TuneInsightApi.as_view(), name="api-tune-insight"),
    path("api/tune/<int:pk>/trials/", jobs_api.TrialListApi.as_view(), name="api-trials"),
    path("api/tune/<int:pk>/stop/", jobs_api.TuneStopApi.as_view(), name="api-tune-stop"),
    path("api/tune/<int:pk>/pause/", control_api.TunePauseApi.as_view(), name="api-tune-pause"),
    path("api/tune/<int:pk>/resume/", control_api.TuneResumeApi.as_view(), name="api-tune-resume"),
    path("api/tune/<int:pk>/extend/", control_api.TuneExtendApi.as_view(), name="api-tune-extend"),
    path("api/tune/<int:pk>/move/", control_api.TuneMoveApi.as_view(), name="api-tune-move"),
    path("api/tune/queue/", control_api.QueueApi.as_view(), name="api-queue"),
    path("api/tune/efforts/", control_api.EffortsApi.as_view(), name="api-efforts"),
    path("api/tune/groups/", control_api.GroupListApi.as_view(), name="api-groups"),
    path("api/tune/groups/<int:pk>/", control_api.GroupApi.as_view(), name="api-group"),
    path("api/tune/groups/<int:pk>/<slug:action>/", control_api.GroupActionApi.as_view(), name="api-group-action"),  # POST
    path("api/tune/quarantine/", control_api.QuarantineListApi.as_view(), name="api-quarantine"),
    path("api/tune/quarantine/<int:pk>/lift/", control_api.QuarantineLiftApi.as_view(), name="api-quarantine-lift"),  # POST
    path("api/suites/", suite_api.SuiteListApi.as_view(), name="api-suites"),
    path("api/suites/plan/", suite_api.SuitePlanApi.as_view(), name="api-suite-plan"),
    path("api/suites/<str:name>/", suite_api.SuiteApi.as_view(), name="api-suite"),                            # by name or number
    path("api/suites/<str:name>/toml/", suite_api.SuiteFileApi.as_view(), name="api-suite-file"),
    path("api/suites/<str:name>/calibration/", suite_api.SuiteCalibrationApi.as_view(), name="api-suite-calibration"),
    path("api/suites/<str:name>/code/", code_api.SuiteCodeApi.as_view(), name="api-suite-code"),         # PUT, DELETE: owners
    path("api/suites/<str:name>/code/try/", code_api.SuiteCodeTryApi.as_view(), name="api-suite-code-try"),
    path("api/suites/<str:name>/code/try/<int:pk>/stop/", code_api.SuiteCodeStopApi.as_view(), name="api-suite-code-stop"),  # POST
    path("api/suites/<str:name>/code/archives/", code_api.SuiteCodeArchiveApi.as_view(), name="api-suite-code-archives"),  # ?build=
    path("api/suites/<str:name>/counters/", runs_api.SuiteCountersApi.as_view(), name="api-suite-counters"),
    path("api/suites/<str:name>/jobs/", suite_api.SuiteJobListApi.as_view(), name="api-suite-jobs"),
    path("api/suite-jobs/<int:pk>/", suite_api.SuiteJobApi.as_view(), name="api-suite-job"),
    path("api/suite-jobs/<int:pk>/stop/", suite_api.SuiteJobStopApi.as_view(), name="api-suite-job-stop"),  # POST
    path("api/runs/", runs_api.RunsApi.as_view(), name="api-runs"),
    path("api/gates/", verdicts_api.GateListApi.as_view(), name="api-gates"),
    path("api/gates/<int:pk>/", verdicts_api.GateApi.as_view(), name="api-gate"),      # ?wait=30
    path("api/gates/<int:pk>/stop/", verdicts_api.GateStopApi.as_view(), name="api-gate-stop"),  # POST
    path("api/gates/<int:pk>/again/", verdicts_api.GateAgainApi.as_view(), name="api-gate-again"),  # POST
    path("api/gates/<int:pk>/gone/", verdicts_api.GateGoneApi.as_view(), name="api-gate-gone"),  # POST
    path("api/gates/<int:pk>/report/", verdicts_api.GateReportApi.as_view(), name="api-gate-report"),            # ?format=md
    path("api/gates/client/<str:name>", verdicts_api.GateClientApi.as_view(), name="api-gate-client"),
    path("api/notified/", channel_api.PlaceListApi.as_view(), name="api-notified"),
    path("api/notified/<int:pk>/", channel_api.PlaceApi.as_view(), name="api-notified-place"),
    path("api/notified/<int:pk>/test/", channel_api.PlaceTestApi.as_view(), name="api-notified-test"),  # POST
    path("api/notified/deliveries/<int:pk>/again/", channel_api.DeliveryAgainApi.as_view(), name="api-delivery-again"),  # POST
    path("api/suites/<int:pk>/baselines/", api.BaselinesApi.as_view(), name="api-baselines"),
    path("api/configs/", browse_api.ConfigListApi.as_view(), name="api-configs"),
    path("api/configs/<int:pk>/", browse_api.ConfigApi.as_view(), name="api-config"),
    path("api/configs/revalidate/", browse_api.RevalidateApi.as_view(), name="api-revalidate"),
    path("api/configs/revalidations/<int:pk>/", browse_api.RevalidationApi.as_view(), name="api-revalidation"),
    path("api/configs/portability/", exchange_api.PortabilityApi.as_view(), name="api-portability"),
    path("api/configs/buckets/", exchange_api.BucketsApi.as_view(), name="api-buckets"),
    path("api/configs/import/", exchange_api.ImportApi.as_view(), name="api-import"),
    path("api/configs/export/", exchange_api.ExportApi.as_view(), name="api-export"),
    path("api/tune/<int:pk>/export/<str:kind>/", exchange_api.TrialsExportApi.as_view(), name="api-trials-export"),
    path("api/configs/snapshot/", serve_api.SnapshotApi.as_view(), name="api-config-snapshot"),
    path("api/configs/served/", serve_api.ServedApi.as_view(), name="api-config-served"),
    path("api/configs/listened/", serve_api.ListenedApi.as_view(), name="api-config-listened"),  # POST
    path("api/configs/client/<str:name>", serve_api.ClientFileApi.as_view(), name="api-config-client"),
    path("api/workers/clocks/", clocks_api.ClockListApi.as_view(), name="api-gpu-clocks"),
    path("api/workers/clocks/<str:uuid>/", clocks_api.ClockApi.as_view(), name="api-gpu-clocks-rule"),      # PUT, DELETE: owners
    path("api/candidates/", candidates_api.CandidateListApi.as_view(), name="api-candidates"),
    path("api/candidates/permits/", candidates_api.CandidatePermitApi.as_view(), name="api-candidate-permits"),     # POST: owners
    path("api/candidates/source/<str:operator>/", candidates_api.CandidateSourceApi.as_view(), name="api-candidate-source"),
    path("api/candidates/<int:pk>/", candidates_api.CandidateApi.as_view(), name="api-candidate"),
    path("api/candidates/<int:pk>/text/", candidates_api.CandidateTextApi.as_view(), name="api-candidate-text"),     # ?diff=1
    path("api/candidates/<int:pk>/cancel/", candidates_api.CandidateCancelApi.as_view(), name="api-candidate-cancel"),
    path("api/candidates/<int:pk>/review/", candidates_api.CandidateReviewApi.as_view(), name="api-candidate-review"),
    path("api/operators/", team_api.OperatorListApi.as_view(), name="api-operators"),
    path("api/operators/packages/", team_api.PackageListApi.as_view(), name="api-operator-packages"),
    path("api/operators/packages/<str:name>/", team_api.PackageApi.as_view(), name="api-operator-package"),    # DELETE
    path("api/operators/check/", bring_api.CheckListApi.as_view(), name="api-kernel-checks"),
    path("api/operators/check/<int:pk>/", bring_api.CheckApi.as_view(), name="api-kernel-check"),
    path("api/operators/check/<int:pk>/stop/", bring_api.CheckStopApi.as_view(), name="api-kernel-check-stop"),
    path("api/operators/check/<int:pk>/tune/", own_api.OwnTuneApi.as_view(), name="api-kernel-check-tune"),
    path("api/operators/client/ridgepoint_tune.py", own_api.OwnClientApi.as_view(), name="api-own-client"),
    path("api/operators/own/", own_api.OwnListApi.as_view(), name="api-own-kernels"),
    path("api/operators/own/<str:name>/", own_api.OwnApi.as_view(), name="api-own-kernel"),
    path("api/operators/space/", bring_api.SpaceApi.as_view(), name="api-kernel-space"),
    path("api/operators/<str:name>/", team_api.OperatorApi.as_view(), name="api-operator"),      # ?dtype=&gpu=&M=…; after packages/
    path("api/compiled/<str:tool>/", compiled_api.CompiledListApi.as_view(), name="api-compiled-list"),
    path("api/compiled/<str:tool>/<str:key>/", compiled_api.CompiledApi.as_view(), name="api-compiled"),
    path("api/configs/best/", browse_api.ConfigBestApi.as_view(), name="api-config-best"),
]
