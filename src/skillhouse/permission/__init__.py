"""Decides, purely, whether something may happen.

The judge of command lines is loaded when it is first used, because few commands need it.
"""

from typing import TYPE_CHECKING

from skillhouse.floor.rules import STRICTNESS as STRICTNESS
from skillhouse.floor.rules import Dialect as Dialect
from skillhouse.floor.rules import Effect as Effect
from skillhouse.floor.rules import covers as covers
from skillhouse.floor.rules import matches as matches
from skillhouse.floor.rules import matches_in as matches_in
from skillhouse.floor.rules import strictest as strictest
from skillhouse.permission.decision import Decision as Decision
from skillhouse.permission.decision import Layer as Layer
from skillhouse.permission.decision import MatchedRule as MatchedRule
from skillhouse.permission.decision import Permission as Permission
from skillhouse.permission.decision import Rule as Rule
from skillhouse.permission.decision import decide as decide
from skillhouse.permission.decision import explain as explain

if TYPE_CHECKING:
    from skillhouse.permission.command_reader import CommandReading as CommandReading
    from skillhouse.permission.command_reader import loads_code as loads_code
    from skillhouse.permission.command_reader import only_reads as only_reads
    from skillhouse.permission.command_reader import program_of as program_of
    from skillhouse.permission.command_reader import read_command as read_command
    from skillhouse.permission.command_reader import reading_of as reading_of
    from skillhouse.permission.command_reader import unwrapped as unwrapped
    from skillhouse.permission.command_rules import ArgumentRules as ArgumentRules
    from skillhouse.permission.command_rules import CommandRuleError as CommandRuleError
    from skillhouse.permission.command_rules import CommandRules as CommandRules
    from skillhouse.permission.command_rules import LayerRules as LayerRules
    from skillhouse.permission.command_rules import narrows as narrows
    from skillhouse.permission.command_rules import standing_bond as standing_bond
    from skillhouse.permission.command_rules import standing_rule as standing_rule
    from skillhouse.permission.decision import ACTIONS as ACTIONS
    from skillhouse.permission.decision import TOOL_ACTIONS as TOOL_ACTIONS
    from skillhouse.permission.environment import may_start as may_start
    from skillhouse.permission.grammar import CommandMeaning as CommandMeaning
    from skillhouse.permission.judge import judge_argv as judge_argv
    from skillhouse.permission.judge import judge_command as judge_command
    from skillhouse.permission.judge import judge_line as judge_line
    from skillhouse.permission.judge import shell_line as shell_line
    from skillhouse.permission.lint import UNKNOWN_ACTION as UNKNOWN_ACTION
    from skillhouse.permission.lint import RuleFinding as RuleFinding
    from skillhouse.permission.lint import beyond as beyond
    from skillhouse.permission.lint import example_holds as example_holds
    from skillhouse.permission.lint import lint_rules as lint_rules
    from skillhouse.permission.path_policy import PathPolicy as PathPolicy
    from skillhouse.permission.path_policy import git_paths as git_paths
    from skillhouse.permission.patterns import Breadth as Breadth
    from skillhouse.permission.plan import CommandPlan as CommandPlan
    from skillhouse.permission.plan import CommandVerdict as CommandVerdict
    from skillhouse.permission.plan import JudgedCommand as JudgedCommand
    from skillhouse.permission.plan import Pipeline as Pipeline
    from skillhouse.permission.plan import Redirect as Redirect
    from skillhouse.permission.plan import SimpleCommand as SimpleCommand
    from skillhouse.permission.plan import command_resource as command_resource
    from skillhouse.permission.plan import plan_text as plan_text
else:
    from skillhouse.lazy_exports import lazy_exports

    __all__, __getattr__ = lazy_exports(__name__)
