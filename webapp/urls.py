"""Every page and API route: those of the apps, and what belongs to no single one."""

from django.urls import include, path
from drf_spectacular.views import SpectacularAPIView, SpectacularSwaggerSplitView

from webapp import kernels, pages
from webapp.agents import api as agents_api
from webapp.agents import pages as agents_pages
from webapp.audit import pages as audit_pages
from webapp.forges import api as forge_api
from webapp.forges import pages as forge_pages
from webapp.frame import api as frame_api
from webapp.frame import pages as frame_pages
from webapp.operate import pages as operate_pages
from webapp.people import api as people_api
from webapp.people import pages as people_pages
from webapp.problem import api as problem_api
from webapp.problem import pages as problem_pages
from webapp.projects import api as project_api
from webapp.projects import pages as project_pages
from webapp.retention import pages as retention_pages
from webapp.sharing import pages as sharing_pages
from webapp.threads import api as thread_api
from webapp.threads import pages as thread_pages

handler400, handler403, handler404, handler500 = (
    f"webapp.errors.{name}" for name in ("bad_request", "forbidden", "not_found", "server_error"))

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
    path("api/problem/", problem_api.ProblemApi.as_view(), name="api-problem"),             # ?operator=&dtype=&gpu=&M=…
    # agents: /mcp itself is answered before these (webapp.agents.door)
    path("agents/", agents_pages.agents, name="agents"),                          # ?token=&tool=&outcome=
    path("agents/budget/", agents_pages.budget, name="agents-budget"),            # POST, owners
    path("api/agents/me/", agents_api.MeApi.as_view(), name="api-agents-me"),
    # people
    path("accounts/", include("webapp.people.urls")),                              # sign in and out, second factor, tokens
    path("projects/", include(project_pages.urlpatterns)),
    path("api/projects/", project_api.ProjectsApi.as_view(), name="api-projects"),
    path("api/projects/<slug:slug>/members/", project_api.MembersApi.as_view(), name="api-members"),
    path("audit/", audit_pages.audit, name="audit"),                              # ?q=&action=&kind=&person=
    path("api/audit/", audit_pages.AuditApi.as_view(), name="api-audit"),
    path("", include(people_pages.urlpatterns)),                                   # people/, accounts/sessions/
    path("", include(sharing_pages.urlpatterns)),                                  # share/<secret>/, sharing/
    path("storage/", retention_pages.storage, name="storage"),
    path("storage/change/", retention_pages.storage_change, name="storage-change"),                              # POST: do=save|run
    path("api/storage/", retention_pages.StorageApi.as_view(), name="api-storage"),
    path("api/people/", people_api.PeopleApi.as_view(), name="api-people"),
    path("api/people/<int:pk>/", people_api.PersonApi.as_view(), name="api-person"),
    path("api/people/<int:pk>/sign-out/", people_api.SignOutApi.as_view(), name="api-person-sign-out"),        # POST
    path("api/invitations/", people_api.InvitationsApi.as_view(), name="api-invitations"),
    path("api/invitations/<int:pk>/", people_api.InvitationApi.as_view(), name="api-invitation"),               # DELETE
    path("api/sessions/", people_api.SessionsApi.as_view(), name="api-sessions"),
    path("api/sessions/<int:pk>/", people_api.SessionApi.as_view(), name="api-session"),                        # DELETE
    # threads
    path("threads/", thread_pages.thread_list, name="thread-list"),                 # ?q=&status=&kind=&mine=
    path("threads/about/", thread_pages.about, name="thread-about"),                # ?kind=&of= leads to a thread, or shows none
    path("threads/write/", thread_pages.write, name="thread-write"),                # POST kind, of, text: the first comment
    path("threads/own/", thread_pages.own, name="thread-own"),                      # POST kind, of, assignee, due
    path("threads/<int:pk>/", thread_pages.thread, name="thread"),
    path("threads/<int:pk>/comment/", thread_pages.comment_add, name="comment-add"),          # POST, as those below
    path("threads/<int:pk>/status/", thread_pages.status_set, name="thread-status"),
    path("threads/<int:pk>/assign/", thread_pages.assign, name="thread-assign"),
    path("comments/<int:pk>/edit/", thread_pages.comment_edit, name="comment-edit"),
    path("comments/<int:pk>/delete/", thread_pages.comment_delete, name="comment-delete"),
    path("follow/", thread_pages.follow, name="follow"),                            # kind, key, on
    path("inbox/", thread_pages.inbox, name="inbox"),
    path("inbox/read/", thread_pages.inbox_read, name="inbox-read"),
    path("inbox/mail/", thread_pages.mail_set, name="inbox-mail"),
    path("forges/", forge_pages.forges, name="forge-list"),                       # POST adds one
    path("forges/<int:pk>/change/", forge_pages.change, name="forge-change"),     # POST, as those below
    path("forges/<int:pk>/delete/", forge_pages.delete, name="forge-delete"),
    path("forges/<int:pk>/hook/", forge_pages.hook, name="forge-hook"),           # of the forge, signed
    path("threads/<int:pk>/link/", forge_pages.link_add, name="issue-link"),
    path("threads/<int:pk>/issue/", forge_pages.issue_create, name="issue-create"),
    path("issues/<int:pk>/unlink/", forge_pages.link_remove, name="issue-unlink"),
    path("api/forges/", forge_api.ForgeListApi.as_view(), name="api-forges"),
    path("api/forges/<int:pk>/", forge_api.ForgeApi.as_view(), name="api-forge"),
    path("api/threads/<int:pk>/issues/", forge_api.IssueListApi.as_view(), name="api-issues"),
    path("api/threads/", thread_api.ThreadListApi.as_view(), name="api-threads"),
    path("api/threads/people/", thread_api.PeopleApi.as_view(), name="api-thread-people"),             # ?q=
    path("api/threads/<int:pk>/", thread_api.ThreadApi.as_view(), name="api-thread"),
    path("api/threads/<int:pk>/comments/", thread_api.CommentListApi.as_view(), name="api-comments"),
    path("api/comments/<int:pk>/", thread_api.CommentApi.as_view(), name="api-comment"),
    path("api/follows/", thread_api.FollowApi.as_view(), name="api-follows"),
    path("api/inbox/", thread_api.InboxApi.as_view(), name="api-inbox"),
    # API
    path("api/activity/", frame_api.ActivityApi.as_view(), name="api-activity"),
    path("api/search/", frame_api.SearchApi.as_view(), name="api-search"),                  # ?q=
    path("api/workers/", pages.WorkersApi.as_view(), name="api-workers"),
    path("api/status/", operate_pages.StatusApi.as_view(), name="api-status"),
    path("api/schema/", SpectacularAPIView.as_view(), name="api-schema"),
    path("api/docs/", SpectacularSwaggerSplitView.as_view(url_name="api-schema"), name="api-docs"),
    path("metrics", operate_pages.metrics, name="metrics"),
    path("health/", pages.health, name="health"),                   # /health/live and /health/ready: webapp.operate.probes
]
