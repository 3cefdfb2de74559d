"""What a person does with skills and rules that are there."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from skillhouse.manage.code_facts import CodeFacts as CodeFacts
    from skillhouse.manage.code_facts import facts_at as facts_at
    from skillhouse.manage.code_facts import facts_named as facts_named
    from skillhouse.manage.code_facts import listed_code as listed_code
    from skillhouse.manage.code_facts import offered_code as offered_code
    from skillhouse.manage.code_facts import project_code as project_code
    from skillhouse.manage.code_reload import reload_code as reload_code
    from skillhouse.manage.rule_editor import checked_addition as checked_addition
    from skillhouse.manage.rule_editor import only_editor as only_editor
    from skillhouse.manage.rule_editor import rule_text as rule_text
    from skillhouse.manage.rule_editor import rule_value as rule_value
    from skillhouse.manage.rule_editor import with_changed_rule as with_changed_rule
    from skillhouse.manage.rule_editor import with_policy as with_policy
    from skillhouse.manage.rule_editor import with_repository as with_repository
    from skillhouse.manage.rule_editor import without_rule as without_rule
    from skillhouse.manage.rule_editor import write_user_text as write_user_text
    from skillhouse.manage.skill_editor import EDITABLE as EDITABLE
    from skillhouse.manage.skill_editor import FrontmatterError as FrontmatterError
    from skillhouse.manage.skill_editor import OwnRoots as OwnRoots
    from skillhouse.manage.skill_editor import read_draft as read_draft
    from skillhouse.manage.skill_editor import skill_source as skill_source
    from skillhouse.manage.skill_editor import update_skill as update_skill
    from skillhouse.manage.skill_states import STATES as STATES
    from skillhouse.manage.skill_states import absent_skills as absent_skills
    from skillhouse.manage.skill_states import changed_skills as changed_skills
    from skillhouse.manage.skill_states import find_skill as find_skill
    from skillhouse.manage.skill_states import installed_marks as installed_marks
    from skillhouse.manage.skill_states import may_hold_code as may_hold_code
    from skillhouse.manage.skill_states import state_of as state_of
    from skillhouse.manage.skills_manager import SkillsManager as SkillsManager
    from skillhouse.manage.skills_manager import register_tools as register_tools
    from skillhouse.manage.trust_state import RepositoryFreshness as RepositoryFreshness
    from skillhouse.manage.trust_state import repository_freshness as repository_freshness
    from skillhouse.manage.trust_state import signature_warnings as signature_warnings
    from skillhouse.manage.trust_state import trust_notes as trust_notes
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
