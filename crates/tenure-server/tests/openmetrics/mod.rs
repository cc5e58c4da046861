//! Reads OpenMetrics text as strictly as a collector may, and refuses it otherwise. Never a test.
#![allow(dead_code, unreachable_pub, clippy::unwrap_used, reason = "each test file uses its own part of this")]

use std::collections::{BTreeMap, BTreeSet};

/// What one rendering says.
#[derive(Debug, Default)]
pub struct Exposition {
    /// The kind of each family, by the name that its samples begin with.
    pub families: BTreeMap<String, String>,
    /// The value of each series, by its name and labels as they are written.
    pub series: BTreeMap<String, f64>,
}

impl Exposition {
    /// Reads a rendering, or says what is wrong with it.
    pub fn read(text: &str) -> Result<Self, String> {
        let mut read = Self::default();
        let mut family = String::new();
        let body = text.strip_suffix("# EOF\n").ok_or("it does not end in EOF")?;
        for line in body.lines() {
            match line.strip_prefix("# ") {
                Some(comment) => read.comment(comment, &mut family)?,
                None => read.sample(line, &family)?,
            }
        }
        read.histograms_add_up()?;
        Ok(read)
    }

    /// The value of one series, 0 if it is not shown.
    pub fn value(&self, series: &str) -> f64 {
        self.series.get(series).copied().unwrap_or_default()
    }

    /// The names that people query by: of counters with their suffix, of histograms without.
    pub fn names(&self) -> BTreeSet<String> {
        let name = |(name, kind): (&String, &String)| match kind.as_str() {
            "counter" => format!("{name}_total"),
            "info" => format!("{name}_info"),
            _ => name.clone(),
        };
        self.families.iter().map(name).collect()
    }

    fn comment(&mut self, comment: &str, family: &mut String) -> Result<(), String> {
        let mut words = comment.splitn(3, ' ');
        let (what, name, rest) = (words.next().unwrap(), words.next().ok_or(comment)?, words.next().ok_or(comment)?);
        match what {
            "HELP" if self.families.contains_key(name) => return Err(format!("{name} is there twice")),
            "HELP" if rest.ends_with('.') => name.clone_into(family),
            "TYPE" if name == family => drop(self.families.insert(name.into(), rest.into())),
            "UNIT" if name == family && name.ends_with(&format!("_{rest}")) => {}
            _ => return Err(format!("out of place: {comment}")),
        }
        Ok(())
    }

    fn sample(&mut self, line: &str, family: &str) -> Result<(), String> {
        let (series, value) = line.rsplit_once(' ').ok_or(line)?;
        let name = series.split('{').next().unwrap();
        let suffix = name.strip_prefix(family).ok_or_else(|| format!("{line} is not of {family}"))?;
        let kind = self.families.get(family).ok_or_else(|| format!("{family} has no type"))?;
        let fits = match kind.as_str() {
            "counter" => suffix == "_total",
            "info" => suffix == "_info" && value == "1",
            "gauge" => suffix.is_empty(),
            "histogram" => ["_bucket", "_sum", "_count"].contains(&suffix),
            _ => false,
        };
        let value: f64 = value.parse().map_err(|error| format!("{line}: {error}"))?;
        let is_new = self.series.insert(series.into(), value).is_none();
        if fits && is_new && value >= 0.0 {
            Ok(())
        } else {
            Err(format!("{line} does not fit a {kind}, or is there twice"))
        }
    }

    /// The last bucket of a histogram holds all of it.
    fn histograms_add_up(&self) -> Result<(), String> {
        for (series, value) in self.series.iter().filter(|(series, _)| series.contains("le=\"+Inf\"")) {
            let count =
                series.replace("_bucket", "_count").replace("le=\"+Inf\"", "").replace(",}", "}").replace("{}", "");
            if self.series.get(&count) != Some(value) {
                return Err(format!("{series} is {value}, and {count} is not"));
            }
        }
        Ok(())
    }
}
