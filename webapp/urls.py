"""Every page and API route: those of the apps, and what belongs to no single one."""

from django.contrib import admin
from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from webapp import accounts, kernels, metrics, pages
from webapp.audit import pages as audit_pages
from webapp.frame import api as frame_api
from webapp.frame import pages as frame_pages
from webapp.operate import pages as operate_pages
from webapp.problem import pages as problem_pages
from webapp.projects import api as project_api
from webapp.projects import pages as project_pages

handler400, handler403, handler404, handler500 = (
    f"webapp.errors.{name}" for name in ("bad_request", "forbidden", "not_found", "server_error"))

admin.autodiscover()

urlpatterns = [
    path("", include("profiles.urls")),
    path("", include("tuner.urls")),
    # home
    path("", pages.home, name="home"),
    path("examples/", pages.examples_load, name="examples-load"),                  # POST
    path("examples/environments/", pages.examples_environments, name="examples-environments"),          # POST: two toolkits
    path("examples/guard/", pages.examples_guard, name="examples-guard"),          # POST: a suite over recorded runs
    path("search/", pages.search, name="search"),
    path("workers/", pages.workers, name="workers"),
    path("status/", operate_pages.status, name="status"),
    path("docs/", frame_pages.document_list, name="document-list"),
    path("docs/<slug:name>/", frame_pages.document, name="document"),
    path("docs/<slug:name>/<path:file>", frame_pages.document_file, name="document-file"),
    # profiles
    path("kernels/<int:pk>/", kernels.family, name="family"),
    path("kernels/problem/", problem_pages.problem, name="problem"),      # ?operator=&dtype=&gpu=&M=… or ?shape= ?kernel= ?family=
    path("kernels/problem/tune/", problem_pages.problem_tune, name="problem-tune"),         # POST, as the next
    path("kernels/problem/guard/", problem_pages.problem_guard, name="problem-guard"),
    # people
    path("accounts/", include(accounts.urlpatterns)),                              # sign in and out, tokens
    path("projects/", include(project_pages.urlpatterns)),
    path("api/projects/", project_api.ProjectsApi.as_view(), name="api-projects"),
    path("api/projects/<slug:slug>/members/", project_api.MembersApi.as_view(), name="api-members"),
    path("audit/", audit_pages.audit, name="audit"),                              # ?q=&action=&kind=&person=
    path("api/audit/", audit_pages.AuditApi.as_view(), name="api-audit"),
    path("admin/", admin.site.urls),
    # API
    path("api/activity/", frame_api.ActivityApi.as_view(), name="api-activity"),
    path("api/search/", frame_api.SearchApi.as_view(), name="api-search"),                  # ?q=
    path("api/workers/", pages.WorkersApi.as_view(), name="api-workers"),
    path("api/status/", operate_pages.StatusApi.as_view(), name="api-status"),
    path("api/schema/", SpectacularAPIView.as_view(), name="api-schema"),
    path("api/docs/", SpectacularSwaggerSplitView.as_view(url_name="api-schema"), name="api-docs"),
    path("metrics", metrics.metrics, name="metrics"),
    path("health/", pages.health, name="health"),                   # /health/live and /health/ready: webapp.operate.probes
]
