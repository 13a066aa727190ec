//! The parts of a Grafana dashboard that are drawn.

use std::collections::BTreeMap;
use std::time::Duration;

use anyhow::Result;
use serde::Deserialize;

/// A dashboard.
#[derive(Debug, Deserialize)]
pub(super) struct Dashboard {
    pub(super) title: String,
    pub(super) panels: Vec<Panel>,
    templating: Templating,
}

#[derive(Debug, Deserialize)]
struct Templating {
    list: Vec<Variable>,
}

#[derive(Debug, Deserialize)]
struct Variable {
    name: String,
}

/// A panel, or the heading of a row.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Panel {
    pub(super) title: String,
    #[serde(rename = "type")]
    pub(super) kind: PanelKind,
    pub(super) grid_pos: GridPos,
    #[serde(default)]
    pub(super) targets: Vec<PanelQuery>,
    #[serde(default)]
    field_config: FieldConfig,
}

/// The kinds of panels that can be drawn.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "lowercase")]
pub(super) enum PanelKind {
    /// The heading of the panels below it.
    Row,
    /// The latest value.
    Stat,
    /// Lines over time.
    Timeseries,
    /// Buckets of a histogram over time.
    Heatmap,
}

/// A place in Grafana's grid, which has 24 columns.
#[derive(Clone, Copy, Debug, Deserialize)]
pub(super) struct GridPos {
    pub(super) x: u32,
    pub(super) y: u32,
    pub(super) w: u32,
    pub(super) h: u32,
}

/// A query of a panel.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct PanelQuery {
    pub(super) expr: String,
    #[serde(default)]
    legend_format: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FieldConfig {
    defaults: FieldDefaults,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct FieldDefaults {
    unit: String,
    thresholds: Thresholds,
}

#[derive(Debug, Default, Deserialize)]
#[serde(default)]
struct Thresholds {
    steps: Vec<ThresholdStep>,
}

#[derive(Debug, Deserialize)]
struct ThresholdStep {
    color: String,
    /// The least value with this colour; none for the first step.
    value: Option<f64>,
}

/// The labels of a series.
pub(super) type SeriesLabels = BTreeMap<String, String>;

impl Dashboard {
    /// Reads a dashboard from its JSON.
    ///
    /// # Errors
    ///
    /// If it is none, or has a kind of panel that cannot be drawn.
    pub(super) fn parse(text: &str) -> Result<Self> {
        Ok(serde_json::from_str(text)?)
    }

    /// A query without Grafana's variables. The variables of the dashboard stand for all values. Rates are over four
    /// scrapes, which is the least that Grafana takes.
    pub(super) fn resolved(&self, expr: &str, every: Duration) -> String {
        let over = format!("{}ms", 4 * every.as_millis());
        let expr = expr.replace("$__rate_interval", &over);
        self.templating.list.iter().fold(expr, |expr, variable| {
            let name = format!("${}", variable.name);
            expr.replace(&name, ".*")
        })
    }
}

impl PanelQuery {
    /// The name of a series in the legend.
    pub(super) fn name_of(&self, labels: &SeriesLabels) -> String {
        if self.legend_format.is_empty() {
            let pairs = labels.iter().map(|(label, value)| format!("{label}={value}"));
            return pairs.collect::<Vec<_>>().join(", ");
        }
        labels.iter().fold(self.legend_format.clone(), |name, (label, value)| {
            name.replace(&format!("{{{{{label}}}}}"), value)
        })
    }
}

impl Panel {
    /// The factor by which values are shown, and the unit that they then have. `top` is the highest value.
    pub(super) fn scale(&self, top: f64) -> (f64, &str) {
        const KIB: f64 = 1024.0;
        match &*self.field_config.defaults.unit {
            "s" if top < 1.0 => (1000.0, "ms"),
            "bytes" if top >= KIB * KIB => (1.0 / KIB / KIB, "MiB"),
            "bytes" => (1.0 / KIB, "KiB"),
            "Bps" => (1e-3, "kB/s"),
            "percentunit" => (100.0, "%"),
            "ops" => (1.0, "per second"),
            "reqps" => (1.0, "requests/s"),
            "none" => (1.0, ""),
            unit => (1.0, unit),
        }
    }

    /// The colour of a value by the panel's thresholds.
    pub(super) fn colour_of(&self, value: f64) -> Option<&str> {
        let steps = self.field_config.defaults.thresholds.steps.iter();
        let mut reached = steps.filter(|step| step.value.is_none_or(|least| value >= least));
        reached.next_back().map(|step| &*step.color)
    }
}

#[cfg(test)]
mod tests {
    #![allow(clippy::unwrap_used)]
    use super::*;

    fn chart() -> Dashboard {
        Dashboard::parse(super::super::DASHBOARD).unwrap()
    }

    fn panel<'a>(dashboard: &'a Dashboard, title: &str) -> &'a Panel {
        dashboard.panels.iter().find(|panel| panel.title == title).unwrap()
    }

    #[test]
    fn no_variable_is_left_in_a_query_of_the_chart() {
        let dashboard = chart();
        let exprs: Vec<_> = dashboard
            .panels
            .iter()
            .flat_map(|panel| &panel.targets)
            .map(|query| dashboard.resolved(&query.expr, Duration::from_secs(15)))
            .collect();
        assert!(exprs.len() > 60, "{} queries", exprs.len());
        assert!(exprs.iter().all(|expr| !expr.contains('$')), "{exprs:#?}");
        assert!(exprs.iter().any(|expr| expr.contains("[60000ms]")), "{exprs:#?}");
    }

    #[test]
    fn a_legend_has_the_values_of_labels() {
        let query: PanelQuery =
            serde_json::from_str(r#"{"expr": "a", "legendFormat": "{{verb}} {{resource}}"}"#).unwrap();
        let labels = [("resource", "pods"), ("verb", "list")];
        let labels: SeriesLabels = labels.map(|(name, value)| (name.to_owned(), value.to_owned())).into();
        assert_eq!(query.name_of(&labels), "list pods");
        let plain = PanelQuery { legend_format: String::new(), ..query };
        assert_eq!(plain.name_of(&labels), "resource=pods, verb=list");
    }

    #[test]
    fn values_are_shown_in_their_units_and_colours() {
        let dashboard = chart();
        let heartbeat = panel(&dashboard, "Oldest heartbeat");
        assert_eq!((heartbeat.scale(0.5), heartbeat.scale(20.0)), ((1000.0, "ms"), (1.0, "s")));
        let colours = [1.0, 5.0, 9.9, 10.0].map(|age| heartbeat.colour_of(age).unwrap());
        assert_eq!(colours, ["green", "orange", "orange", "red"]);
        assert_eq!(panel(&dashboard, "Memory").scale(2e6).1, "MiB");
    }

    #[test]
    fn a_kind_of_panel_that_cannot_be_drawn_is_named() {
        let text = super::super::DASHBOARD.replace("\"heatmap\"", "\"piechart\"");
        let error = format!("{:#}", Dashboard::parse(&text).unwrap_err());
        assert!(error.contains("piechart"), "{error}");
    }
}
