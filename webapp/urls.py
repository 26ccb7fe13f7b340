"""Every page and API route of the product, on one screen."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from profiles import anatomy_api, compare_pages
from profiles import api as profiles_api
from profiles import pages as profiles_pages
from profiles.actions import api as action_api
from profiles.actions import pages as action_pages
from profiles.advice import api as advice_api
from profiles.advice import pages as advice_pages
from profiles.capture import api as capture_api
from profiles.capture import pages as capture_pages
from profiles.ceilings import api as ceiling_api
from profiles.ceilings import pages as ceiling_pages
from profiles.exports import api as exports_api
from profiles.exports import timeline_api as exports_timeline_api
from profiles.families import api as family_api
from profiles.families import pages as family_pages
from profiles.notes import api as note_api
from profiles.occupancy import api as occupancy_api
from profiles.occupancy import pages as occupancy_pages
from profiles.report import api as report_api
from profiles.report import pages as report_pages
from profiles.rooflines import api as roofline_api
from profiles.rooflines import pages as roofline_pages
from profiles.source import api as source_api
from profiles.source import pages as source_pages
from profiles.sql import api as sql_api
from profiles.sql import pages as sql_pages
from profiles.sql import track_api as sql_track_api
from profiles.timeline import api as timeline_api
from profiles.timeline import pages as timeline_pages
from profiles.timeline import path_api, selection_api
from profiles.topics import api as topic_api
from profiles.topics import pages as topic_pages
from tuner.baselines import api as baseline_api
from tuner.baselines import pages as baseline_pages
from tuner.builds import api as build_api
from tuner.builds import pages as build_pages
from tuner.builds import regression_pages
from tuner.configs import api as config_api
from tuner.configs import exchange_api, exchange_pages, revalidation_pages
from tuner.configs import pages as config_pages
from tuner.environments import api as environment_api
from tuner.environments import pages as environment_pages
from tuner.gates import api as gate_api
from tuner.gates import counter_pages as gate_counter_pages
from tuner.gates import pages as gate_pages
from tuner.gates import report_api as gate_report_api
from tuner.jobs import api as tuner_api
from tuner.jobs import compare_pages as tune_compare_pages
from tuner.jobs import control_api, group_pages, new_pages, page_api, quarantine_pages, queue_pages
from tuner.jobs import pages as tuner_pages
from tuner.notify import api as notify_api
from tuner.notify import pages as notify_pages
from tuner.scores import api as score_api
from tuner.scores import pages as score_pages
from tuner.served import api as served_api
from tuner.served import pages as served_pages
from tuner.suites import api as suite_api
from tuner.suites import counter_api as suite_counter_api
from tuner.suites import edit_pages as suite_edit_pages
from tuner.suites import pages as suite_pages
from tuner.suites import runs_api
from tuner.team import api as team_api
from tuner.team import pages as team_pages
from webapp import accounts, kernels, pages

handler400, handler403, handler404, handler500 = (
    f"webapp.errors.{name}" for name in ("bad_request", "forbidden", "not_found", "server_error"))

urlpatterns = [
    # home
    path("", pages.home, name="home"),
    path("examples/", pages.examples_load, name="examples-load"),                  # POST
    path("examples/environments/", pages.examples_environments, name="examples-environments"),          # POST: two toolkits
    path("examples/guard/", pages.examples_guard, name="examples-guard"),          # POST: a suite over recorded runs
    path("search/", pages.search, name="search"),
    path("workers/", pages.workers, name="workers"),
    # profiles
    path("profiles/", profiles_pages.profile_list, name="profile-list"),
    path("profiles/upload/", profiles_pages.profile_upload, name="profile-upload"),
    path("profiles/<int:pk>/", profiles_pages.profile_detail, name="profile"),
    path("profiles/<int:pk>/timeline/", timeline_pages.timeline, name="timeline"),
    path("timelines/", timeline_pages.timelines_choose, name="timelines-choose"),               # ?a=1&b=2
    path("timelines/<int:a>/<int:b>/", timeline_pages.timelines, name="timelines"),
    path("profiles/<int:pk>/roofline/", roofline_pages.roofline, name="roofline"),
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/", profiles_pages.kernel_detail, name="kernel"),
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/source/", source_pages.source, name="source"),        # ?launch=0&metric=…
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/sampling/", source_pages.sampling, name="sampling"),  # ?launch=0
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/tune/", action_pages.kernel_tune, name="kernel-tune"),            # → form
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/capture/", action_pages.kernel_capture, name="kernel-capture"),   # → form
    path("profiles/<int:pk>/report/", report_pages.report, name="report"),         # to print
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/advice/", advice_pages.advice_decide, name="advice-decide"),       # POST
    path("profiles/<int:pk>/advice/", advice_pages.advice_decide, name="advice-decide-run"),                           # POST
    path("advice/", advice_pages.advice_list, name="advice"),                      # ?show=open|verified|refuted|dismissed
    path("profiles/<int:pk>/analysis/<slug:name>/", topic_pages.topic_page, name="topic"),
    path("profiles/<int:pk>/delete/", profiles_pages.profile_delete, name="profile-delete"),   # POST
    path("kernels/", family_pages.kernel_list, name="kernel-list"),
    path("kernels/<int:pk>/", kernels.family, name="family"),
    path("kernels/shapes/<int:pk>/", family_pages.family_shape, name="family-shape"),
    path("kernels/<int:pk>/merge/", family_pages.family_merge, name="family-merge"),           # POST, as the next six
    path("kernels/<int:pk>/split/", family_pages.family_split, name="family-split"),
    path("kernels/<int:pk>/rename/", family_pages.family_rename, name="family-rename"),
    path("kernels/<int:pk>/notes/", family_pages.note_create, name="family-note"),
    path("kernels/edits/<int:pk>/undo/", family_pages.edit_undo, name="family-undo"),
    path("kernels/notes/<int:pk>/delete/", family_pages.note_delete, name="family-note-delete"),
    path("roofline/", roofline_pages.rooflines, name="rooflines"),                 # ?profiles=1,2&before=1&after=2
    path("occupancy/", occupancy_pages.occupancy, name="occupancy"),               # ?kernel=1 or ?cc=9.0&threads=256&…
    path("compare/", compare_pages.compare, name="compare"),                      # ?a=1&b=2 or ?build_a=…&build_b=…
    path("builds/", build_pages.build_list, name="build-list"),                    # ?suite=&on=&branch=&kernel=
    path("builds/<path:name>/", build_pages.build_detail, name="build"),            # ?on=&against=
    path("bisect/measure/", build_pages.bisect_ask, name="bisect-measure"),        # POST
    path("regressions/", regression_pages.regression_list, name="regression-list"),             # ?state=&suite=&gpu=&build=&q=
    path("regressions/<int:pk>/", regression_pages.regression_detail, name="regression"),
    path("regressions/<int:pk>/counters/", gate_counter_pages.regression_counters, name="regression-counters"),           # POST
    path("regressions/<int:pk>/change/", regression_pages.regression_change, name="regression-change"),      # POST
    path("sql/", sql_pages.sql_console, name="sql"),                               # ?profiles=1,2 ?query=3
    # captures
    path("captures/", capture_pages.capture_list, name="capture-list"),
    path("captures/new/", capture_pages.capture_new, name="capture-new"),
    path("captures/targets/", capture_pages.capture_targets, name="capture-targets"),
    path("captures/<int:pk>/", capture_pages.capture_detail, name="capture"),
    path("captures/<int:pk>/stop/", capture_pages.capture_stop, name="capture-stop"),          # POST
    path("ceilings/", ceiling_pages.ceiling_list, name="ceilings"),
    path("ceilings/measure/", ceiling_pages.ceiling_measure, name="ceiling-measure"),          # POST
    path("ceilings/<int:pk>/", ceiling_pages.ceiling_run, name="ceiling-run"),
    path("ceilings/<int:pk>/stop/", ceiling_pages.ceiling_stop, name="ceiling-stop"),          # POST
    # environments
    path("environments/", environment_pages.environments, name="environments"),    # ?suite=&kernel=&runs=&before=&after=
    path("environments/revalidate/", environment_pages.revalidate, name="environments-revalidate"),            # POST
    path("environments/policy/", environment_pages.policy, name="environments-policy"),                        # POST, owners
    # suites
    path("suites/", suite_pages.suite_list, name="suite-list"),
    path("suites/new/", suite_edit_pages.suite_new, name="suite-new"),             # ?operator=…&M=…
    path("suites/apply/", suite_edit_pages.suite_apply, name="suite-apply"),       # POST: a file
    path("suites/<int:pk>/", suite_pages.suite_detail, name="suite"),              # ?gpu=&toolkit=&driver=&recorded=
    path("suites/<int:pk>/edit/", suite_edit_pages.suite_edit, name="suite-edit"),
    path("suites/<int:pk>/kernels/<int:kernel_pk>/", suite_pages.suite_kernel, name="suite-kernel"),
    path("suites/<int:pk>/calibration/", suite_pages.suite_calibration, name="suite-calibration"),
    path("suites/<int:pk>/suite.toml", suite_pages.suite_file, name="suite-file"),
    path("suites/<int:pk>/run/", suite_pages.suite_run, name="suite-run"),         # POST, as the next four
    path("suites/<int:pk>/upload/", suite_pages.suite_upload, name="suite-upload"),
    path("suites/<int:pk>/jobs/<int:job_pk>/stop/", suite_pages.suite_stop, name="suite-stop"),
    path("suites/<int:pk>/switch/", suite_pages.suite_switch, name="suite-switch"),
    path("suites/<int:pk>/delete/", suite_pages.suite_delete, name="suite-delete"),
    # gates
    path("gates/", gate_pages.gate_list, name="gate-list"),                        # ?suite=&build=&gpu=&verdict=&status=
    path("gates/new/", gate_pages.gate_new, name="gate-new"),                      # ?suite=&build=&against=
    path("gates/<int:pk>/", gate_pages.gate_detail, name="gate"),
    path("gates/<int:pk>/kernels/<int:kernel_pk>/", gate_pages.gate_kernel, name="gate-kernel"),
    path("gates/<int:pk>/kernels/<int:kernel_pk>/counters/", gate_counter_pages.gate_kernel_counters,
         name="gate-kernel-counters"),                                                               # POST
    path("gates/<int:pk>/stop/", gate_pages.gate_stop, name="gate-stop"),          # POST
    path("gates/<int:pk>/again/", gate_pages.gate_again, name="gate-again"),       # POST
    path("notified/", notify_pages.notified, name="notified"),                     # ?to=3: the messages of one place
    path("notified/add/", notify_pages.notified_create, name="notified-create"),   # POST, as the next three: owners
    path("notified/<int:pk>/", notify_pages.notified_change, name="notified-change"),
    path("notified/<int:pk>/delete/", notify_pages.notified_delete, name="notified-delete"),
    path("notified/deliveries/<int:pk>/again/", notify_pages.delivery_again, name="delivery-again"),
    path("suites/<int:pk>/baselines/", baseline_pages.baselines, name="suite-baselines"),      # ?gpu=&toolkit=&driver=
    path("suites/<int:pk>/baselines/change/", baseline_pages.baseline_change, name="baseline-change"),         # POST
    # tuner
    path("tune/", tuner_pages.tune_list, name="tune-list"),
    path("tune/new/", new_pages.tune_new, name="tune-new"),
    path("tune/compare/", tune_compare_pages.tune_compare, name="tune-compare"),
    path("tune/by-worth/", queue_pages.queue_by_worth, name="tune-by-worth"),      # POST
    path("tune/groups/<int:pk>/", group_pages.tune_group, name="tune-group"),
    path("tune/groups/<int:pk>/act/", group_pages.tune_group_act, name="tune-group-act"),      # POST
    path("tune/methods/", score_pages.leaderboard, name="leaderboard"),
    path("tune/<int:pk>/", tuner_pages.tune_detail, name="tune"),
    path("tune/<int:pk>/stop/", tuner_pages.tune_stop, name="tune-stop"),          # POST
    path("tune/<int:pk>/pause/", tuner_pages.tune_pause, name="tune-pause"),       # POST
    path("tune/<int:pk>/resume/", tuner_pages.tune_resume, name="tune-resume"),    # POST
    path("tune/<int:pk>/extend/", tuner_pages.tune_extend, name="tune-extend"),    # POST
    path("tune/<int:pk>/move/", queue_pages.tune_move, name="tune-move"),          # POST
    path("tune/quarantine/", quarantine_pages.quarantine_list, name="quarantine-list"),
    path("tune/quarantine/<int:pk>/lift/", quarantine_pages.quarantine_lift, name="quarantine-lift"),          # POST
    path("tune/operators/", team_pages.operator_list, name="operators"),
    path("tune/operators/enable/", team_pages.package_enable, name="operator-enable"),         # POST, owners
    path("tune/operators/<int:pk>/", team_pages.package_change, name="operator-package"),      # POST, owners
    path("cache/served/", served_pages.served, name="cache-served"),               # ?days=7
    path("cache/", config_pages.cache_list, name="cache-list"),
    path("cache/<int:pk>/", config_pages.cache_detail, name="cache"),
    path("cache/<int:pk>/state/", config_pages.cache_state, name="cache-state"),              # POST
    path("cache/why/", config_pages.cache_why, name="cache-why"),
    path("cache/revalidate/", revalidation_pages.revalidate, name="cache-revalidate"),        # POST
    path("cache/revalidations/", revalidation_pages.revalidation_list, name="cache-revalidations"),
    path("cache/revalidations/<int:pk>/", revalidation_pages.revalidation, name="cache-revalidation"),
    path("cache/revalidations/<int:pk>/stop/", revalidation_pages.revalidation_stop, name="cache-revalidation-stop"),      # POST
    path("cache/portability/", exchange_pages.cache_portability, name="cache-portability"),
    path("cache/buckets/", exchange_pages.cache_buckets, name="cache-buckets"),
    path("cache/exchange/", exchange_pages.cache_exchange, name="cache-exchange"),
    path("cache/export/", exchange_pages.cache_export, name="cache-export"),
    path("cache/imports/<int:pk>/", exchange_pages.cache_import, name="cache-import"),
    path("cache/imports/<int:pk>/measure/", exchange_pages.cache_import_measure, name="cache-import-measure"),    # POST
    path("cache/imports/<int:pk>/forget/", exchange_pages.cache_import_forget, name="cache-import-forget"),       # POST
    path("tune/<int:pk>/export/<str:kind>/", exchange_pages.trials_export, name="trials-export"),
    # people
    path("accounts/", include(accounts.urlpatterns)),                              # sign in and out, tokens
    path("admin/", admin.site.urls),
    # API
    path("api/profiles/", profiles_api.ProfileListApi.as_view(), name="api-profiles"),
    path("api/profiles/<int:pk>/", profiles_api.ProfileApi.as_view(), name="api-profile"),
    path("api/profiles/<int:pk>/kernels/", profiles_api.KernelListApi.as_view(), name="api-kernels"),
    path("api/profiles/<int:pk>/counters/", profiles_api.CounterListApi.as_view(), name="api-counters"),
    path("api/profiles/<int:pk>/kernels/<int:kernel_pk>/anatomy/", anatomy_api.AnatomyApi.as_view(), name="api-anatomy"),
    path("api/profiles/<int:pk>/tables/", profiles_api.TableListApi.as_view(), name="api-tables"),
    path("api/profiles/<int:pk>/roofline/", roofline_api.RooflineApi.as_view(), name="api-roofline"),
    path("api/profiles/<int:pk>/source/<int:launch>/", source_api.SourceApi.as_view(), name="api-source"),
    path("api/profiles/<int:pk>/sampling/<int:launch>/", source_api.SamplingApi.as_view(), name="api-sampling"),
    path("api/profiles/<int:pk>/kernels/<int:kernel_pk>/advice/", advice_api.KernelAdviceApi.as_view(), name="api-kernel-advice"),
    path("api/profiles/<int:pk>/advice/", advice_api.RunAdviceApi.as_view(), name="api-run-advice"),               # POST
    path("api/advice/", advice_api.AdviceListApi.as_view(), name="api-advice"),
    path("api/advice/<int:pk>/", advice_api.DecisionApi.as_view(), name="api-decision"),                           # DELETE
    path("api/profiles/<int:pk>/analysis/<slug:name>/", topic_api.TopicApi.as_view(), name="api-topic"),
    path("api/profiles/<int:pk>/summary/", report_api.SummaryApi.as_view(), name="api-summary"),                 # ?format=md
    path("api/profiles/<int:pk>/kernels/<int:kernel_pk>/actions/", action_api.KernelActionsApi.as_view(),
         name="api-kernel-actions"),
    path("api/profiles/<int:pk>/timeline/", timeline_api.TimelineApi.as_view(), name="api-timeline"),
    path("api/profiles/<int:pk>/critical-path/", path_api.CriticalPathApi.as_view(), name="api-critical-path"),
    path("api/profiles/<int:pk>/names/", timeline_api.NamesApi.as_view(), name="api-names"),
    path("api/profiles/<int:pk>/density/", timeline_api.DensityApi.as_view(), name="api-density"),
    path("api/profiles/<int:pk>/tiles/<int:level>/<int:index>/", timeline_api.TileApi.as_view(), name="api-tile"),
    path("api/profiles/<int:pk>/slices/", timeline_api.SliceSearchApi.as_view(), name="api-slices"),
    path("api/profiles/<int:pk>/hits/", timeline_api.HitsApi.as_view(), name="api-hits"),
    path("api/profiles/<int:pk>/slices/<int:slice_id>/", selection_api.SliceApi.as_view(), name="api-slice"),
    path("api/profiles/<int:pk>/slices/<int:slice_id>/kernel/", selection_api.SliceKernelApi.as_view(), name="api-slice-kernel"),
    path("api/profiles/<int:pk>/selection/", selection_api.SelectionApi.as_view(), name="api-selection"),
    path("api/profiles/<int:pk>/selection/columns/", selection_api.AreaColumnsApi.as_view(), name="api-selection-columns"),
    path("api/profiles/<int:pk>/selection/histogram/", selection_api.HistogramApi.as_view(), name="api-selection-histogram"),
    path("api/profiles/<int:pk>/selection/slices/", selection_api.AreaSlicesApi.as_view(), name="api-selection-slices"),
    path("api/profiles/<int:pk>/selection/flame/", selection_api.FlameApi.as_view(), name="api-selection-flame"),
    path("api/profiles/<int:pk>/export/trace/", exports_timeline_api.TraceExportApi.as_view(), name="api-export-trace"),
    path("api/profiles/<int:pk>/export/slices/", exports_timeline_api.SlicesExportApi.as_view(), name="api-export-slices"),
    path("api/profiles/<int:pk>/export/hits/", exports_timeline_api.HitsExportApi.as_view(), name="api-export-hits"),
    path("api/profiles/<int:pk>/launches/", exports_timeline_api.LaunchesExportApi.as_view(), name="api-launches"),
    path("api/tables/", exports_api.TableApi.as_view(), name="api-table"),                # POST: cells in, a file out
    path("api/profiles/<int:pk>/notes/", note_api.NoteListApi.as_view(), name="api-notes"),
    path("api/profiles/<int:pk>/notes/<int:note_pk>/", note_api.NoteApi.as_view(), name="api-note"),
    path("api/profiles/<int:pk>/sql/<str:queries>/", sql_track_api.SqlTimelineApi.as_view(), {"rest": ""}),
    path("api/profiles/<int:pk>/sql/<str:queries>/<path:rest>", sql_track_api.SqlTimelineApi.as_view(), name="api-sql-timeline"),
    path("api/sql/", sql_api.SqlApi.as_view(), name="api-sql"),                    # POST
    path("api/sql/stop/", sql_api.SqlStopApi.as_view(), name="api-sql-stop"),      # POST
    path("api/sql/tables/", sql_api.SqlTablesApi.as_view(), name="api-sql-tables"),
    path("api/queries/", sql_api.QueryListApi.as_view(), name="api-queries"),
    path("api/queries/<int:pk>/", sql_api.QueryApi.as_view(), name="api-query"),
    path("api/occupancy/", occupancy_api.OccupancyApi.as_view(), name="api-occupancy"),
    path("api/kernels/", family_api.FamilyListApi.as_view(), name="api-families"),
    path("api/builds/", build_api.BuildListApi.as_view(), name="api-builds"),
    path("api/builds/bisect/", environment_api.BisectApi.as_view(), name="api-bisect"),     # ?suite=&kernel=&gpu=&good=&bad=
    path("api/environments/", environment_api.EnvironmentsApi.as_view(), name="api-environments"),             # ?suite=&kernel=
    path("api/environments/policy/", environment_api.RevalidationPolicyApi.as_view(), name="api-environments-policy"),     # PUT
    path("api/environments/revalidate/", environment_api.EnvironmentsRevalidateApi.as_view(), name="api-environments-revalidate"),
    path("api/builds/series/", build_api.SeriesApi.as_view(), name="api-series"),   # ?suite=&kernel=&gpu=&branch=
    path("api/builds/<path:name>/", build_api.BuildApi.as_view(), name="api-build"),            # after what else begins so
    path("api/regressions/", build_api.RegressionListApi.as_view(), name="api-regressions"),
    path("api/regressions/<int:pk>/", build_api.RegressionApi.as_view(), name="api-regression"),
    path("api/kernels/changes/", family_api.BuildChangesApi.as_view(), name="api-build-changes"),
    path("api/kernels/<int:pk>/", family_api.FamilyApi.as_view(), name="api-family"),
    path("api/kernels/shapes/<int:pk>/", family_api.ShapeApi.as_view(), name="api-family-shape"),
    path("api/kernels/<int:pk>/notes/", family_api.FamilyNotesApi.as_view(), name="api-family-notes"),
    path("api/kernels/edits/", family_api.FamilyEditsApi.as_view(), name="api-family-edits"),
    path("api/kernels/edits/<int:pk>/undo/", family_api.FamilyUndoApi.as_view(), name="api-family-undo"),
    path("api/roofline/", roofline_api.RooflinesApi.as_view(), name="api-rooflines"),
    path("api/compare/", profiles_api.CompareApi.as_view(), name="api-compare"),
    path("api/captures/", capture_api.CaptureListApi.as_view(), name="api-captures"),
    path("api/captures/preview/", capture_api.CapturePreviewApi.as_view(), name="api-capture-preview"),  # POST
    path("api/captures/targets/", capture_api.CaptureTargetListApi.as_view(), name="api-capture-targets"),
    path("api/captures/<int:pk>/", capture_api.CaptureApi.as_view(), name="api-capture"),
    path("api/captures/<int:pk>/stop/", capture_api.CaptureStopApi.as_view(), name="api-capture-stop"),
    path("api/ceilings/", ceiling_api.CeilingListApi.as_view(), name="api-ceilings"),
    path("api/ceilings/<int:pk>/", ceiling_api.CeilingApi.as_view(), name="api-ceiling"),
    path("api/ceilings/<int:pk>/stop/", ceiling_api.CeilingStopApi.as_view(), name="api-ceiling-stop"),
    path("api/tune/", tuner_api.TuneListApi.as_view(), name="api-tune-list"),
    path("api/leaderboard/", score_api.LeaderboardApi.as_view(), name="api-leaderboard"),
    path("api/tune/<int:pk>/", tuner_api.TuneApi.as_view(), name="api-tune"),
    path("api/tune/compare/", page_api.TuneCompareApi.as_view(), name="api-tune-compare"),
    path("api/tune/worth/", page_api.TuneWorthApi.as_view(), name="api-tune-worth"),
    path("api/tune/<int:pk>/insight/", page_api.TuneInsightApi.as_view(), name="api-tune-insight"),
    path("api/tune/<int:pk>/trials/", tuner_api.TrialListApi.as_view(), name="api-trials"),
    path("api/tune/<int:pk>/stop/", tuner_api.TuneStopApi.as_view(), name="api-tune-stop"),
    path("api/tune/<int:pk>/pause/", control_api.TunePauseApi.as_view(), name="api-tune-pause"),
    path("api/tune/<int:pk>/resume/", control_api.TuneResumeApi.as_view(), name="api-tune-resume"),
    path("api/tune/<int:pk>/extend/", control_api.TuneExtendApi.as_view(), name="api-tune-extend"),
    path("api/tune/<int:pk>/move/", control_api.TuneMoveApi.as_view(), name="api-tune-move"),
    path("api/tune/queue/", control_api.QueueApi.as_view(), name="api-queue"),
    path("api/tune/efforts/", control_api.EffortsApi.as_view(), name="api-efforts"),
    path("api/tune/groups/", control_api.GroupListApi.as_view(), name="api-groups"),
    path("api/tune/groups/<int:pk>/", control_api.GroupApi.as_view(), name="api-group"),
    path("api/tune/groups/<int:pk>/<slug:action>/", control_api.GroupActionApi.as_view(), name="api-group-action"),       # POST
    path("api/tune/quarantine/", control_api.QuarantineListApi.as_view(), name="api-quarantine"),
    path("api/tune/quarantine/<int:pk>/lift/", control_api.QuarantineLiftApi.as_view(), name="api-quarantine-lift"),      # POST
    path("api/suites/", suite_api.SuiteListApi.as_view(), name="api-suites"),
    path("api/suites/plan/", suite_api.SuitePlanApi.as_view(), name="api-suite-plan"),
    path("api/suites/<str:name>/", suite_api.SuiteApi.as_view(), name="api-suite"),                            # by name or number
    path("api/suites/<str:name>/toml/", suite_api.SuiteFileApi.as_view(), name="api-suite-file"),
    path("api/suites/<str:name>/calibration/", suite_api.SuiteCalibrationApi.as_view(), name="api-suite-calibration"),
    path("api/suites/<str:name>/counters/", suite_counter_api.SuiteCountersApi.as_view(), name="api-suite-counters"),
    path("api/suites/<str:name>/jobs/", suite_api.SuiteJobListApi.as_view(), name="api-suite-jobs"),
    path("api/suite-jobs/<int:pk>/", suite_api.SuiteJobApi.as_view(), name="api-suite-job"),
    path("api/suite-jobs/<int:pk>/stop/", suite_api.SuiteJobStopApi.as_view(), name="api-suite-job-stop"),     # POST
    path("api/runs/", runs_api.RunsApi.as_view(), name="api-runs"),
    path("api/gates/", gate_api.GateListApi.as_view(), name="api-gates"),
    path("api/gates/<int:pk>/", gate_api.GateApi.as_view(), name="api-gate"),      # ?wait=30
    path("api/gates/<int:pk>/stop/", gate_api.GateStopApi.as_view(), name="api-gate-stop"),                    # POST
    path("api/gates/<int:pk>/again/", gate_api.GateAgainApi.as_view(), name="api-gate-again"),                 # POST
    path("api/gates/<int:pk>/report/", gate_report_api.GateReportApi.as_view(), name="api-gate-report"),            # ?format=md
    path("api/gates/client/<str:name>", gate_report_api.GateClientApi.as_view(), name="api-gate-client"),
    path("api/notified/", notify_api.PlaceListApi.as_view(), name="api-notified"),
    path("api/notified/<int:pk>/", notify_api.PlaceApi.as_view(), name="api-notified-place"),
    path("api/notified/<int:pk>/test/", notify_api.PlaceTestApi.as_view(), name="api-notified-test"),          # POST
    path("api/notified/deliveries/<int:pk>/again/", notify_api.DeliveryAgainApi.as_view(), name="api-delivery-again"),    # POST
    path("api/suites/<int:pk>/baselines/", baseline_api.BaselinesApi.as_view(), name="api-baselines"),
    path("api/configs/", config_api.ConfigListApi.as_view(), name="api-configs"),
    path("api/configs/<int:pk>/", config_api.ConfigApi.as_view(), name="api-config"),
    path("api/configs/revalidate/", config_api.RevalidateApi.as_view(), name="api-revalidate"),
    path("api/configs/revalidations/<int:pk>/", config_api.RevalidationApi.as_view(), name="api-revalidation"),
    path("api/configs/portability/", exchange_api.PortabilityApi.as_view(), name="api-portability"),
    path("api/configs/buckets/", exchange_api.BucketsApi.as_view(), name="api-buckets"),
    path("api/configs/import/", exchange_api.ImportApi.as_view(), name="api-import"),
    path("api/configs/export/", exchange_api.ExportApi.as_view(), name="api-export"),
    path("api/tune/<int:pk>/export/<str:kind>/", exchange_api.TrialsExportApi.as_view(), name="api-trials-export"),
    path("api/configs/snapshot/", served_api.SnapshotApi.as_view(), name="api-config-snapshot"),
    path("api/configs/served/", served_api.ServedApi.as_view(), name="api-config-served"),
    path("api/configs/listened/", served_api.ListenedApi.as_view(), name="api-config-listened"),               # POST
    path("api/configs/client/<str:name>", served_api.ClientFileApi.as_view(), name="api-config-client"),
    path("api/operators/", team_api.OperatorListApi.as_view(), name="api-operators"),
    path("api/operators/packages/", team_api.PackageListApi.as_view(), name="api-operator-packages"),
    path("api/operators/packages/<str:name>/", team_api.PackageApi.as_view(), name="api-operator-package"),    # DELETE
    path("api/configs/best/", config_api.ConfigBestApi.as_view(), name="api-config-best"),
    path("api/workers/", pages.WorkersApi.as_view(), name="api-workers"),
    path("api/schema/", SpectacularAPIView.as_view(), name="api-schema"),
    path("api/docs/", SpectacularSwaggerSplitView.as_view(url_name="api-schema"), name="api-docs"),
    path("health/", pages.health, name="health"),
]
