//! Tables in the output of commands.

use comfy_table::{ContentArrangement, Table, presets};

/// A table without borders, as kubectl prints it.
pub(super) fn plain_table() -> Table {
    let mut table = Table::new();
    table.load_preset(presets::NOTHING).set_content_arrangement(ContentArrangement::Disabled);
    table
}
