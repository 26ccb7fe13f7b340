"""One operation for all models of a squashed migration."""

from django.db.migrations import CreateModel, SeparateDatabaseAndState


class CreateAtOnce(SeparateDatabaseAndState):
    """Create the models of `operations`, with the fields, indexes and constraints that further ones add to them.

    Each operation by itself renders every related model anew, and through users and projects nearly all are related: a hundred
    models took 8,000 renderings. Here all of them are known before the first table is made, from one rendering.
    """

    def __init__(self, operations):
        super().__init__(state_operations=operations)

    def deconstruct(self):
        return self.__class__.__name__, [self.state_operations], {}

    def state_forwards(self, app_label, state):
        state.__dict__.pop("apps", None)
        super().state_forwards(app_label, state)

    def database_forwards(self, app_label, schema_editor, from_state, to_state):
        for model in self._models(app_label, schema_editor, to_state):
            schema_editor.create_model(model)

    def database_backwards(self, app_label, schema_editor, from_state, to_state):
        for model in reversed(self._models(app_label, schema_editor, from_state)):
            schema_editor.delete_model(model)

    def describe(self):
        return f"Create {sum(isinstance(each, CreateModel) for each in self.state_operations)} models"

    def _models(self, app_label, schema_editor, state):
        models = [state.apps.get_model(app_label, each.name) for each in self.state_operations if isinstance(each, CreateModel)]
        return [model for model in models if self.allow_migrate_model(schema_editor.connection.alias, model)]
