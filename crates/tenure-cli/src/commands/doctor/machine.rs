//! What the doctor finds of the machine: its clock, and how many files a process may open.

use super::Finding;
use tenure_server::{CONNECTIONS_MAX, FILES_RESERVED};

const CLOCK_SOURCE: &str = "/sys/devices/system/clocksource/clocksource0/current_clocksource";

/// Each takes microseconds to read, or is coarse.
const SLOW_SOURCES: [&str; 4] = ["hpet", "acpi_pm", "jiffies", "refined-jiffies"];

/// A server takes so many connections, and a few files for itself.
const FILES_WANTED: u64 = (CONNECTIONS_MAX + FILES_RESERVED) as u64;

pub(super) fn clock_source() -> Finding {
    judge_clock(std::fs::read_to_string(CLOCK_SOURCE).ok().as_deref().map(str::trim))
}

fn judge_clock(source: Option<&str>) -> Finding {
    let check = "clock source";
    match source {
        None => Finding::ok(check, "the kernel does not say"),
        Some(source) if SLOW_SOURCES.contains(&source) => {
            let todo =
                "Reading it is slow and costs throughput: boot with clocksource=tsc, or ask whoever runs the host.";
            Finding::warn(check, source, todo)
        }
        Some(source) => Finding::ok(check, source),
    }
}

pub(super) fn open_files() -> Finding {
    let limits = rlimit::Resource::NOFILE.get();
    limits.map_or_else(|_| Finding::ok("open files", "the kernel does not say"), |(_, hard)| judge_files(hard))
}

/// The server raises its own limit as far as the hard one goes.
fn judge_files(hard: u64) -> Finding {
    let check = "open files";
    let most = hard.saturating_sub(FILES_RESERVED as u64);
    match hard {
        FILES_WANTED.. => Finding::ok(check, format!("{hard} at most, enough for {CONNECTIONS_MAX} connections")),
        _ => {
            let todo = "Further clients wait: raise it with `ulimit -Hn`, or LimitNOFILE= in the service's unit.";
            Finding::warn(check, format!("{hard} at most, enough for {most} connections"), todo)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::Verdict;
    use super::*;

    #[test]
    fn slow_clocks_and_few_files_are_warned_of() {
        assert_eq!(judge_clock(Some("tsc")).verdict, Verdict::Ok);
        assert_eq!(judge_clock(Some("kvm-clock")).verdict, Verdict::Ok);
        assert_eq!(judge_clock(None).verdict, Verdict::Ok);
        for slow in SLOW_SOURCES {
            assert_eq!(judge_clock(Some(slow)).verdict, Verdict::Warn, "{slow}");
        }
        assert_eq!(judge_files(FILES_WANTED).verdict, Verdict::Ok);
        let few = judge_files(FILES_WANTED - 1);
        assert_eq!(few.verdict, Verdict::Warn);
        assert!(few.found.contains("enough for 16383 connections"), "{}", few.found);
    }
}
