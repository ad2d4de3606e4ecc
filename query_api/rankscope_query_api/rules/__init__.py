"""Rules that judge a run: TQL texts with thresholds that everybody can read, change and ask themselves."""

from rankscope_query_api.rules.catalog import RULES, Guard, Rule, rule_named

__all__ = ["RULES", "Guard", "Rule", "rule_named"]
