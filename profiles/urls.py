"""Pages and API routes of profiles, kernels, captures and queries."""

from django.urls import path

from profiles.actions import api as actions_api
from profiles.actions import pages as actions_pages
from profiles.advice import api as advice_api
from profiles.advice import pages as advice_pages
from profiles.capture import api as capture_api
from profiles.capture import pages as capture_pages
from profiles.ceilings import api as ceilings_api
from profiles.ceilings import pages as ceilings_pages
from profiles.compare import api as compare_api
from profiles.compare import pages as compare_pages
from profiles.counters import anatomy_api
from profiles.downloads import api as downloads_api
from profiles.exports import api as exports_api
from profiles.families import api as families_api
from profiles.families import pages as families_pages
from profiles.fleet import api as fleet_api
from profiles.fleet.browse import capture_pages as fleet_capture_pages
from profiles.fleet.browse import pages as fleet_pages
from profiles.kernel import api as kernel_api
from profiles.kernel import pages as kernel_pages
from profiles.notes import api as notes_api
from profiles.occupancy import api as occupancy_api
from profiles.occupancy import pages as occupancy_pages
from profiles.overview import api as overview_api
from profiles.overview import pages as overview_pages
from profiles.report import api as report_api
from profiles.report import pages as report_pages
from profiles.rooflines import api as rooflines_api
from profiles.rooflines import pages as rooflines_pages
from profiles.running import agents_api as running_agents_api
from profiles.running import api as running_api
from profiles.running import pages as running_pages
from profiles.source import api as source_api
from profiles.source import pages as source_pages
from profiles.sql import api as sql_api
from profiles.sql import pages as sql_pages
from profiles.sql import track_api
from profiles.timeline import api as timeline_api
from profiles.timeline import kernel_lanes_api, selection_api
from profiles.timeline import pages as timeline_pages
from profiles.timeline import selection_api as path_api
from profiles.topics import api as topics_api
from profiles.topics import pages as topics_pages

urlpatterns = [
    # profiles
    path("profiles/", overview_pages.profile_list, name="profile-list"),
    path("profiles/upload/", overview_pages.profile_upload, name="profile-upload"),
    path("profiles/<int:pk>/", overview_pages.profile_detail, name="profile"),
    path("profiles/<int:pk>/apart/", overview_pages.profile_apart, name="profile-apart"),        # POST
    path("profiles/<int:pk>/number/", overview_pages.profile_number, name="profile-number"),     # POST
    path("profiles/<int:pk>/reread/", overview_pages.profile_reread, name="profile-reread"),     # POST
    path("profiles/<int:pk>/timeline/", timeline_pages.timeline, name="timeline"),
    path("timelines/", timeline_pages.timelines_choose, name="timelines-choose"),               # ?a=1&b=2
    path("timelines/<int:a>/<int:b>/", timeline_pages.timelines, name="timelines"),
    path("profiles/<int:pk>/roofline/", rooflines_pages.roofline, name="roofline"),
    path("profiles/<int:pk>/roofline/typed/", rooflines_pages.typed_work, name="roofline-typed"),      # POST
    path("profiles/<int:pk>/kernels/", overview_pages.profile_kernels, name="profile-kernels"),  # ?kernels=all|shapes|all-shapes
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/", kernel_pages.kernel, name="kernel"),
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/source/", source_pages.source, name="source"),        # ?launch=0&metric=…
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/sampling/", source_pages.sampling, name="sampling"),  # ?launch=0
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/tune/", actions_pages.kernel_tune, name="kernel-tune"),            # → form
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/capture/", actions_pages.kernel_capture, name="kernel-capture"),   # → form
    path("profiles/<int:pk>/counters/", actions_pages.profile_counters, name="profile-counters"),                      # POST
    path("profiles/<int:pk>/report/", report_pages.report, name="report"),         # to print
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/advice/", advice_pages.advice_decide, name="advice-decide"),  # POST
    path("profiles/<int:pk>/advice/", advice_pages.advice_decide, name="advice-decide-run"),  # POST
    path("advice/", advice_pages.advice_list, name="advice"),                      # ?show=open|verified|refuted|dismissed
    path("profiles/<int:pk>/analysis/<slug:name>/", topics_pages.topic_page, name="topic"),
    path("profiles/<int:pk>/kernels/<int:kernel_pk>/<slug:tab>/", kernel_pages.kernel, name="kernel-tab"),     # memory, warps, …
    path("profiles/<int:pk>/delete/", overview_pages.profile_delete, name="profile-delete"),  # POST
    path("kernels/", families_pages.kernel_list, name="kernel-list"),
    path("kernels/shapes/<int:pk>/", families_pages.family_shape, name="family-shape"),
    path("kernels/<int:pk>/merge/", families_pages.family_merge, name="family-merge"),  # POST, as the next six
    path("kernels/<int:pk>/split/", families_pages.family_split, name="family-split"),
    path("kernels/<int:pk>/rename/", families_pages.family_rename, name="family-rename"),
    path("kernels/<int:pk>/notes/", families_pages.note_create, name="family-note"),
    path("kernels/edits/<int:pk>/undo/", families_pages.edit_undo, name="family-undo"),
    path("kernels/notes/<int:pk>/delete/", families_pages.note_delete, name="family-note-delete"),
    path("roofline/", rooflines_pages.rooflines, name="rooflines"),                 # ?profiles=1,2&before=1&after=2
    path("occupancy/", occupancy_pages.occupancy, name="occupancy"),               # ?kernel=1 or ?cc=9.0&threads=256&…
    path("compare/", compare_pages.compare, name="compare"),                      # ?a=1&b=2 or ?build_a=…&build_b=…
    path("compare/progress/", compare_pages.progress, name="progress"),           # ?model=…&gpu=… or ?profiles=1,2,3
    path("sql/", sql_pages.sql_console, name="sql"),                               # ?profiles=1,2 ?query=3
    # fleet
    path("fleet/", fleet_pages.fleet, name="fleet"),           # ?window=7d&group=kernel&by=job&job=…&build=…&kernel=…
    path("fleet/gpus/", fleet_pages.gpus, name="fleet-gpus"),                      # ?verdict=SLOWER
    path("fleet/utilisation/", fleet_pages.use, name="fleet-utilisation"),
    path("fleet/captures/", fleet_capture_pages.fleet_captures, name="fleet-captures"),         # ?job=&host=
    path("fleet/captures/order/", fleet_capture_pages.fleet_capture_order, name="fleet-capture-order"),
    path("fleet/captures/<int:pk>/stop/", fleet_capture_pages.fleet_capture_stop, name="fleet-capture-stop"),  # POST
    path("fleet/captures/servers/", running_pages.servers, name="engine-servers"),             # ?edit=
    path("fleet/captures/servers/<int:pk>/", running_pages.server, name="engine-server"),
    path("fleet/captures/servers/<int:pk>/version/", running_pages.server_version, name="engine-server-version"),  # POST
    path("fleet/captures/servers/<int:pk>/delete/", running_pages.server_delete, name="engine-server-delete"),  # POST
    path("fleet/captures/engines/<int:pk>/stop/", running_pages.engine_capture_stop, name="engine-capture-stop"),  # POST
    path("fleet/captures/schedules/", running_pages.schedules, name="capture-schedules"),      # ?job=&host=&ranks=&server=&edit=
    path("fleet/captures/schedules/<int:pk>/", running_pages.schedule_change, name="capture-schedule"),  # POST
    path("fleet/agents/", fleet_pages.agents, name="fleet-agents"),                # ?q=&state=silent
    # captures
    path("captures/", capture_pages.capture_list, name="capture-list"),
    path("captures/new/", capture_pages.capture_new, name="capture-new"),
    path("captures/targets/", capture_pages.capture_targets, name="capture-targets"),
    path("captures/<int:pk>/", capture_pages.capture_detail, name="capture"),
    path("captures/<int:pk>/files/<int:file_pk>/", capture_pages.capture_file, name="capture-file"),
    path("captures/<int:pk>/stop/", capture_pages.capture_stop, name="capture-stop"),  # POST
    path("captures/<int:pk>/dump/", capture_pages.capture_dump, name="capture-dump"),  # POST
    path("captures/<int:pk>/delete/", capture_pages.capture_delete, name="capture-delete"),
    path("ceilings/", ceilings_pages.ceiling_list, name="ceilings"),
    path("ceilings/measure/", ceilings_pages.ceiling_measure, name="ceiling-measure"),  # POST
    path("ceilings/<int:pk>/", ceilings_pages.ceiling_run, name="ceiling-run"),
    path("ceilings/<int:pk>/stop/", ceilings_pages.ceiling_stop, name="ceiling-stop"),  # POST
    # API
    path("api/profiles/", overview_api.ProfileListApi.as_view(), name="api-profiles"),
    path("api/profiles/names/", overview_api.NamesApi.as_view(), name="api-profile-names"),
    path("api/profiles/<int:pk>/", overview_api.ProfileApi.as_view(), name="api-profile"),
    path("api/profiles/<int:pk>/apart/", overview_api.ApartApi.as_view(), name="api-profile-apart"),
    path("api/profiles/<int:pk>/number/", overview_api.NumberApi.as_view(), name="api-profile-number"),
    path("api/profiles/<int:pk>/reread/", overview_api.RereadApi.as_view(), name="api-profile-reread"),
    path("api/profiles/<int:pk>/kernels/", overview_api.KernelListApi.as_view(), name="api-kernels"),
    path("api/profiles/<int:pk>/kernel-shapes/", overview_api.KernelShapeListApi.as_view(), name="api-kernel-shapes"),
    path("api/profiles/<int:pk>/counters/", overview_api.CounterListApi.as_view(), name="api-counters"),
    path("api/profiles/<int:pk>/kernels/<int:kernel_pk>/anatomy/", anatomy_api.AnatomyApi.as_view(), name="api-anatomy"),
    path("api/profiles/<int:pk>/kernels/<int:kernel_pk>/baselines/", kernel_api.BaselineListApi.as_view(),
         name="api-kernel-baselines"),
    path("api/profiles/<int:pk>/kernels/<int:kernel_pk>/overlay/", kernel_api.OverlayApi.as_view(), name="api-kernel-overlay"),
    path("api/profiles/<int:pk>/tables/", overview_api.TableListApi.as_view(), name="api-tables"),
    path("api/profiles/<int:pk>/roofline/", rooflines_api.RooflineApi.as_view(), name="api-roofline"),
    path("api/profiles/<int:pk>/source/<int:launch>/", source_api.SourceApi.as_view(), name="api-source"),
    path("api/profiles/<int:pk>/source/<int:launch>/program/", source_api.ProgramApi.as_view(), name="api-program"),
    path("api/profiles/<int:pk>/source/<int:launch>/beside/", source_api.SourceBesideApi.as_view(), name="api-source-beside"),
    path("api/profiles/<int:pk>/sampling/<int:launch>/", source_api.SamplingApi.as_view(), name="api-sampling"),
    path("api/profiles/<int:pk>/kernels/<int:kernel_pk>/advice/", advice_api.KernelAdviceApi.as_view(), name="api-kernel-advice"),
    path("api/profiles/<int:pk>/advice/", advice_api.RunAdviceApi.as_view(), name="api-run-advice"),  # POST
    path("api/advice/", advice_api.AdviceListApi.as_view(), name="api-advice"),
    path("api/advice/<int:pk>/", advice_api.DecisionApi.as_view(), name="api-decision"),                           # DELETE
    path("api/profiles/<int:pk>/analysis/<slug:name>/", topics_api.TopicApi.as_view(), name="api-topic"),
    path("api/profiles/<int:pk>/summary/", report_api.SummaryApi.as_view(), name="api-summary"),                 # ?format=md
    path("api/profiles/<int:pk>/kernels/<int:kernel_pk>/actions/", actions_api.KernelActionsApi.as_view(),
         name="api-kernel-actions"),
    path("api/profiles/<int:pk>/timeline/", timeline_api.TimelineApi.as_view(), name="api-timeline"),
    path("api/profiles/<int:pk>/critical-path/", path_api.CriticalPathApi.as_view(), name="api-critical-path"),
    path("api/profiles/<int:pk>/names/", timeline_api.NamesApi.as_view(), name="api-names"),
    path("api/profiles/<int:pk>/density/", timeline_api.DensityApi.as_view(), name="api-density"),
    path("api/profiles/<int:pk>/kernel-tracks/", kernel_lanes_api.KernelTracksApi.as_view(), name="api-kernel-tracks"),
    path("api/profiles/<int:pk>/kernel-tiles/<int:level>/<int:index>/", kernel_lanes_api.KernelTileApi.as_view(),
         name="api-kernel-tile"),
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
    path("api/profiles/<int:pk>/export/trace/", downloads_api.TraceExportApi.as_view(), name="api-export-trace"),
    path("api/profiles/<int:pk>/export/slices/", downloads_api.SlicesExportApi.as_view(), name="api-export-slices"),
    path("api/profiles/<int:pk>/export/hits/", downloads_api.HitsExportApi.as_view(), name="api-export-hits"),
    path("api/profiles/<int:pk>/launches/", downloads_api.LaunchesExportApi.as_view(), name="api-launches"),
    path("api/tables/", exports_api.TableApi.as_view(), name="api-table"),  # POST: cells in, a file out
    path("api/profiles/<int:pk>/notes/", notes_api.NoteListApi.as_view(), name="api-notes"),
    path("api/profiles/<int:pk>/notes/<int:note_pk>/", notes_api.NoteApi.as_view(), name="api-note"),
    path("api/profiles/<int:pk>/sql/<str:queries>/", track_api.SqlTimelineApi.as_view(), {"rest": ""}),
    path("api/profiles/<int:pk>/sql/<str:queries>/<path:rest>", track_api.SqlTimelineApi.as_view(), name="api-sql-timeline"),
    path("api/sql/", sql_api.SqlApi.as_view(), name="api-sql"),  # POST
    path("api/sql/stop/", sql_api.SqlStopApi.as_view(), name="api-sql-stop"),  # POST
    path("api/sql/tables/", sql_api.SqlTablesApi.as_view(), name="api-sql-tables"),
    path("api/queries/", sql_api.QueryListApi.as_view(), name="api-queries"),
    path("api/queries/<int:pk>/", sql_api.QueryApi.as_view(), name="api-query"),
    path("api/occupancy/", occupancy_api.OccupancyApi.as_view(), name="api-occupancy"),
    path("api/kernels/", families_api.FamilyListApi.as_view(), name="api-families"),
    path("api/kernels/changes/", families_api.BuildChangesApi.as_view(), name="api-build-changes"),
    path("api/kernels/<int:pk>/", families_api.FamilyApi.as_view(), name="api-family"),
    path("api/kernels/shapes/<int:pk>/", families_api.ShapeApi.as_view(), name="api-family-shape"),
    path("api/kernels/<int:pk>/notes/", families_api.FamilyNotesApi.as_view(), name="api-family-notes"),
    path("api/kernels/edits/", families_api.FamilyEditsApi.as_view(), name="api-family-edits"),
    path("api/kernels/edits/<int:pk>/undo/", families_api.FamilyUndoApi.as_view(), name="api-family-undo"),
    path("api/roofline/", rooflines_api.RooflinesApi.as_view(), name="api-rooflines"),
    path("api/compare/choices/", compare_api.CompareChoicesApi.as_view(), name="api-compare-choices"),
    path("api/compare/", overview_api.CompareApi.as_view(), name="api-compare"),
    path("api/progress/", overview_api.ProgressApi.as_view(), name="api-progress"),
    path("api/captures/", capture_api.CaptureListApi.as_view(), name="api-captures"),
    path("api/captures/preview/", capture_api.CapturePreviewApi.as_view(), name="api-capture-preview"),  # POST
    path("api/captures/targets/", capture_api.CaptureTargetListApi.as_view(), name="api-capture-targets"),
    path("api/captures/<int:pk>/", capture_api.CaptureApi.as_view(), name="api-capture"),
    path("api/captures/<int:pk>/stop/", capture_api.CaptureStopApi.as_view(), name="api-capture-stop"),
    path("api/captures/<int:pk>/dump/", capture_api.CaptureDumpApi.as_view(), name="api-capture-dump"),  # POST
    path("api/fleet/batches/", fleet_api.FleetBatchApi.as_view(), name="api-fleet-batches"),      # POST, of agents
    path("api/fleet/captures/", fleet_api.FleetCapturesApi.as_view(), name="api-fleet-captures"),
    path("api/fleet/captures/<int:pk>/", fleet_api.FleetCaptureApi.as_view(), name="api-fleet-capture"),
    path("api/fleet/captures/<int:pk>/stop/", fleet_api.FleetCaptureStopApi.as_view(), name="api-fleet-capture-stop"),  # POST
    path("api/fleet/captures/<int:pk>/trace/", running_agents_api.FleetTraceApi.as_view(), name="api-fleet-capture-trace"),  # POST
    path("api/fleet/orders/", running_agents_api.FleetOrdersApi.as_view(), name="api-fleet-orders"),      # POST, of agents
    path("api/fleet/fetches/<int:pk>/<int:number>/", running_agents_api.FleetFetchApi.as_view(), name="api-fleet-fetch"),  # POST
    path("api/engines/", running_api.ServersApi.as_view(), name="api-engine-servers"),
    path("api/engines/<int:pk>/", running_api.ServerApi.as_view(), name="api-engine-server"),        # PATCH, DELETE
    path("api/engines/<int:pk>/captures/", running_api.ServerCapturesApi.as_view(), name="api-engine-captures"),
    path("api/engines/captures/<int:pk>/", running_api.EngineCaptureApi.as_view(), name="api-engine-capture"),
    path("api/engines/captures/<int:pk>/stop/", running_api.EngineCaptureStopApi.as_view(), name="api-engine-capture-stop"),  # POST
    path("api/captures/schedules/", running_api.SchedulesApi.as_view(), name="api-capture-schedules"),
    path("api/captures/schedules/<int:pk>/", running_api.ScheduleApi.as_view(), name="api-capture-schedule"),   # PATCH, DELETE
    path("api/fleet/top/", fleet_api.FleetTopApi.as_view(), name="api-fleet-top"),
    path("api/fleet/gpus/", fleet_api.FleetGpusApi.as_view(), name="api-fleet-gpus"),
    path("api/fleet/needed/", fleet_api.FleetNeededApi.as_view(), name="api-fleet-needed"),
    path("api/ceilings/", ceilings_api.CeilingListApi.as_view(), name="api-ceilings"),
    path("api/ceilings/<int:pk>/", ceilings_api.CeilingApi.as_view(), name="api-ceiling"),
    path("api/ceilings/<int:pk>/stop/", ceilings_api.CeilingStopApi.as_view(), name="api-ceiling-stop"),
]
