//! `tenure run` in good times: signals, exit codes, what the command finds, what it leaves behind, and the terminal.
#![allow(clippy::unwrap_used, clippy::disallowed_methods, reason = "a test stops where it is surprised")]

use crate::support::terminal::Terminal;
use crate::support::wrapped::{Wrapped, living, until};
use crate::support::{Server, binary, reserved, text};
use std::os::unix::fs::PermissionsExt;
use std::process::{Command, Output};

fn start() -> (tempfile::TempDir, Server) {
    let directory = tempfile::tempdir().unwrap();
    let server = Server::start(directory.path());
    (directory, server)
}

fn run(server: &Server, command: &[&str]) -> Output {
    server.tenure(&[&["run", "db", "--"], command].concat())
}

#[test]
fn signals_reach_the_command_and_its_children_once() {
    let (_directory, server) = start();
    let script = r#"
        hear() { for signal in TERM INT USR1 HUP; do trap "echo $1 $signal >> $OUT/heard" $signal; done; }
        export -f hear until_there note
        hear parent
        # In the foreground: a shell makes those in the background ignore SIGINT.
        bash -c 'hear child; note up x; until_there end'
        exit 9
    "#;
    // SIGINT alone: a shell whose child has survived it forgets the other ones that it has not handled yet.
    for signals in [&["TERM", "USR1", "HUP"][..], &["INT"][..]] {
        let mut wrapped = Wrapped::start(&server, &["db"], script);
        wrapped.until("up", |text| !text.is_empty());
        for signal in signals {
            wrapped.signal(signal);
            wrapped.until("heard", |text| text.contains(&format!("child {signal}\n")));
        }
        wrapped.let_end();
        let (code, words) = wrapped.ends();
        assert_eq!(code, Some(9), "{words}");
        let heard = wrapped.read("heard");
        let told = ["parent", "child"].iter().flat_map(|who| signals.iter().map(move |name| format!("{who} {name}\n")));
        for line in told {
            assert_eq!(heard.matches(&line).count(), 1, "{line}: {heard}");
        }
    }
}

#[test]
fn the_exit_code_is_that_of_the_command() {
    let (_directory, server) = start();
    let code = |script: &str| run(&server, &["sh", "-c", script]).status.code();
    assert_eq!(code("exit 0"), Some(0));
    assert_eq!(code("exit 3"), Some(3));
    assert_eq!(code("kill -9 $$"), Some(128 + 9));
    assert_eq!(code("kill -TERM $$"), Some(128 + 15));
}

#[test]
fn a_command_that_cannot_run_costs_no_lease() {
    let (directory, server) = start();
    let script = directory.path().join("script");
    std::fs::write(&script, "#!/no/such/interpreter\n").unwrap();
    let script = script.to_str().unwrap();
    for (command, code, word) in [
        ("no-such-program", 127, "there is no such program; nothing was changed"),
        ("/no/such/program", 127, "there is no such program; nothing was changed"),
        (script, 126, "may not be executed; nothing was changed"),
        ("/", 126, "is a directory; nothing was changed"),
    ] {
        let output = run(&server, &[command]);
        assert_eq!(output.status.code(), Some(code), "{command}");
        assert!(text(&output.stderr).contains(word), "{command}: {}", text(&output.stderr));
    }
    let history = server.tenure(&["history", "-o", "name"]);
    assert_eq!(text(&history.stdout), "", "nothing was ever claimed");
    std::fs::set_permissions(script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let output = run(&server, &[script]);
    assert_eq!(output.status.code(), Some(126));
    assert!(text(&output.stderr).contains("the interpreter that"), "{}", text(&output.stderr));
    assert_eq!(text(&server.tenure(&["ls", "-o", "name"]).stdout), "", "it was given back");
}

#[test]
fn who_has_it_already_keeps_it_and_nothing_runs() {
    let (directory, server) = start();
    assert!(server.tenure(&["acquire", "db", "--ttl", "10m", "--holder", "bob"]).status.success());
    let sign = directory.path().join("ran");
    for (patience, words) in [(&["-n"][..], "held by bob"), (&["-w", "200ms"], "did not become free in time")] {
        let command = ["--", "touch", sign.to_str().unwrap()];
        let output = server.tenure(&[&["run", "db"], patience, &command].concat());
        assert_eq!(output.status.code(), Some(75), "{patience:?}");
        assert!(text(&output.stderr).contains(words), "{}", text(&output.stderr));
        assert!(!sign.exists());
    }
}

#[test]
fn who_waits_runs_when_it_is_its_turn_and_leaves_the_line_when_it_is_stopped() {
    let (_directory, server) = start();
    let bob = server.tenure(&["acquire", "db", "--ttl", "10m", "--holder", "bob"]);
    let waiting = |count: &str| {
        until("the line", || {
            let shown = server.tenure(&["show", "db", "-o", "json"]);
            text(&shown.stdout).contains(&format!("\"waiting\":{count},"))
        });
    };
    // Longer than anybody looks: it does not leave the line by running out.
    let mut given_up = Wrapped::start(&server, &["db", "--ttl", "10m"], "true");
    waiting("1");
    let mut patient = Wrapped::start(&server, &["db", "-w", "10m"], "exit 3");
    waiting("2");
    given_up.until("words", |words| words.contains("place 1"));
    given_up.signal("TERM");
    let (code, words) = given_up.ends();
    assert!(code == Some(143) && words.contains("waiting, place 1 in line"), "{code:?} {words}");
    waiting("1");
    assert!(server.tenure(&["release", text(&bob.stdout).trim()]).status.success());
    assert_eq!(patient.ends().0, Some(3));
}

#[test]
fn who_gives_up_while_the_server_is_away_does_not_say_that_nothing_was_changed() {
    let (_directory, server) = start();
    assert!(server.tenure(&["acquire", "db", "--ttl", "10m", "--holder", "bob"]).status.success());
    for wait in ["5s", "10m"] {
        let mut waiting = Wrapped::start(&server, &["db", "-w", wait], "true");
        waiting.until("words", |words| words.contains("place"));
        server.signal("STOP");
        if wait == "10m" {
            waiting.signal("TERM");
        }
        let (code, words) = waiting.ends();
        server.signal("CONT");
        assert!(matches!(code, Some(69 | 143)) && words.contains("may stay in line"), "{code:?} {words}");
        assert!(!words.contains("nothing was changed"), "{words}");
    }
    let odd = server.tenure(&["run", "a\u{1b}[31mb", "--", "true"]);
    assert!(!text(&odd.stderr).contains('\u{1b}'), "a name does not move the terminal: {}", text(&odd.stderr));
}

#[test]
fn commands_may_share_a_resource_or_take_some_of_it() {
    let (_directory, server) = start();
    let tenure = binary();
    let shared = ["run", "db", "--shared", "--", tenure, "run", "-n", "db", "--shared", "--", "echo", "both"];
    assert_eq!(text(&server.tenure(&shared).stdout), "both\n");
    let alone = ["run", "db", "--shared", "--", tenure, "run", "-n", "db", "--", "echo", "both"];
    assert_eq!(server.tenure(&alone).status.code(), Some(75));
    let two = ["run", "gpu", "--slots", "1/2", "--", tenure, "run", "-n", "gpu", "--slots", "1/2", "--"];
    assert_eq!(text(&server.tenure(&[&two[..], &["echo", "two"]].concat()).stdout), "two\n");
    let three = [&two[..], &[tenure, "run", "-n", "gpu", "--slots", "1/2", "--", "echo", "three"]].concat();
    assert_eq!(server.tenure(&three).status.code(), Some(75));
    let other = server
        .tenure(&["run", "gpu", "--slots", "1/2", "--", tenure, "run", "-n", "gpu", "--slots", "1/3", "--", "true"]);
    assert!(text(&other.stderr).contains("capacity"), "{}", text(&other.stderr));
    let far = server.tenure(&["run", "db", "--priority", "9999", "--", "true"]);
    assert_eq!(far.status.code(), Some(2), "{}", text(&far.stderr));
}

#[test]
fn it_is_held_for_as_long_as_was_said_also_if_the_command_is_done_sooner() {
    let (_directory, server) = start();
    let mut wrapped = Wrapped::start(&server, &["db", "--at-least", "10m"], "true");
    wrapped.until("words", |words| words.contains("holding on"));
    assert!(text(&server.tenure(&["ls", "-o", "name"]).stdout).contains("db"));
    wrapped.signal("TERM");
    assert_eq!(wrapped.ends().0, Some(0));
    assert_eq!(text(&server.tenure(&["ls", "-o", "name"]).stdout), "");
}

#[test]
fn times_that_do_not_fit_are_refused_before_anything_is_asked_for() {
    let (_directory, server) = start();
    let refused: [(&[&str], &str); 5] = [
        (&["--ttl", "900ms"], "no time to stop a command"),
        (&["--ttl", "10s", "--stop-timeout", "9s"], "does not fit a TTL of 10.0s"),
        (&["--stop-timeout", "50ms"], "leaves no time to stop"),
        (&["--on-lost", "ignore", "--on-jeopardy", "pause"], "cannot be paused"),
        (&["-n", "-w", "1s"], "cannot be used with"),
    ];
    for (flags, words) in refused {
        let output = server.tenure(&[&["run", "db"], flags, &["--", "true"]].concat());
        assert_eq!(output.status.code(), Some(2), "{flags:?}");
        let said = text(&output.stderr);
        assert!(said.contains(words) && said.contains("nothing was changed"), "{flags:?}: {said}");
    }
    assert!(text(&server.tenure(&["history"]).stdout).lines().count() <= 1);
    let warned = server.tenure(&["run", "db", "--ttl", "5s", "--", "true"]);
    assert!(warned.status.success() && text(&warned.stderr).contains("below 10s"), "{}", text(&warned.stderr));
}

#[test]
fn a_server_that_is_not_there_or_is_none_costs_one_clear_message() {
    let (_directory, server) = start();
    let closed = reserved().to_string();
    let rubbish = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let rubbish_addr = rubbish.local_addr().unwrap().to_string();
    std::thread::spawn(move || {
        while let Ok((mut stream, _)) = rubbish.accept() {
            use std::io::Write;
            let _ = stream.write_all(b"SSH-2.0-none of yours\r\n");
        }
    });
    for addr in [closed, rubbish_addr] {
        let output = server.tenure(&["--addr", &addr, "run", "-n", "db", "--", "echo", "ran"]);
        assert_eq!((output.status.code(), text(&output.stdout)), (Some(69), String::new()), "{}", text(&output.stderr));
        assert!(text(&output.stderr).starts_with("tenure: cannot run under db: "), "{}", text(&output.stderr));
    }
    let output = server.tenure(&["run", "a b\n", "--", "echo", "ran"]);
    assert_eq!((output.status.code(), text(&output.stdout)), (Some(2), String::new()), "{}", text(&output.stderr));
}

#[test]
fn what_the_command_leaves_behind_ends_before_the_lease_is_given_back() {
    // If the wrapper stalls, its guard kills in its place, and says nothing.
    let says_so = |_| leaves_one_behind().contains("what did not stop in time was killed");
    assert!((0..10).any(says_so), "the wrapper never kills by itself");
}

/// Leaves a process behind that minds no signal, and gives what the wrapper says of it.
fn leaves_one_behind() -> String {
    let (_directory, server) = start();
    let script = r#"
        (trap '' TERM; echo x > "$OUT/up"; exec sleep 1000) &
        until_there up; until_there end; exit 5
    "#;
    let mut wrapped = Wrapped::start(&server, &["db", "--stop-timeout", "400ms"], script);
    wrapped.until("up", |text| !text.is_empty());
    let group = wrapped.group();
    std::thread::scope(|scope| {
        // It sits the moment that the lease is given back.
        let next = scope.spawn(|| {
            let output = server.tenure(&["acquire", "db", "--wait", "1m", "--holder", "next"]);
            (living(group), output)
        });
        wrapped.let_end();
        let (left, output) = next.join().unwrap();
        assert!(output.status.success(), "{}", text(&output.stderr));
        assert_eq!(left, 0, "the next one was let in before the group was gone");
    });
    let (code, words) = wrapped.ends();
    assert_eq!(code, Some(5), "{words}");
    assert!(words.contains("1 process of its group is left, and asked to stop"), "{words}");
    words
}

#[test]
fn the_command_knows_its_lease() {
    let (_directory, server) = start();
    let args = ["run", "jobs/nightly", "--holder", "ann", "--ttl", "20s", "--", "env"];
    let env = text(&server.tenure(&args).stdout);
    for line in ["TENURE_RESOURCE=jobs/nightly", "TENURE_FENCE=1", "TENURE_HOLDER=ann", "TENURE_TTL=20000"] {
        assert!(env.lines().any(|other| other == line), "{line}: {env}");
    }
}

/// What a script prints, without and with `tenure run`.
fn both(server: &Server, before: &str, script: &str) -> (String, String) {
    let output = |command: &str| {
        let mut shell = Command::new("sh");
        shell.args(["-c", &format!("{before} exec {command} \"$0\""), script]).env("TENURE_ADDR", &server.addr);
        let output = shell.output().unwrap();
        assert!(output.status.success(), "{command}: {}", text(&output.stderr));
        text(&output.stdout)
    };
    (output("sh -c"), output(&format!("{} run db -- sh -c", binary())))
}

#[test]
fn the_command_finds_signals_and_files_as_a_shell_leaves_them() {
    let (_directory, server) = start();
    for before in ["", "trap '' HUP QUIT;"] {
        let (plain, wrapped) = both(&server, before, "grep -E 'Sig(Blk|Ign)' /proc/self/status");
        assert_eq!(plain, wrapped, "{before}");
    }
    let (plain, wrapped) = both(&server, "", "ls /proc/self/fd");
    assert_eq!(plain, wrapped);
    let (plain, wrapped) = both(&server, "", "yes | head -1; echo $?; cat /proc/self/comm");
    assert_eq!(plain, wrapped);
}

/// `tenure run` as the first program of a terminal of its own.
fn in_a_terminal(server: &Server, command: &[&str]) -> Terminal {
    let mut setsid = Command::new("setsid");
    setsid.args(["--ctty", "--wait"]).args(command).env("TENURE_ADDR", &server.addr).env("PS1", "$ ");
    Terminal::start(&mut setsid, 80, 24)
}

#[test]
fn the_command_reads_from_the_terminal_and_hears_ctrl_c_once() {
    let (_directory, server) = start();
    let script = "trap 'echo heard' INT; echo up; until read line; do :; done; echo got $line; exit 6";
    let mut terminal = in_a_terminal(&server, &[binary(), "run", "db", "--", "bash", "-c", script]);
    terminal.until("the command", |seen| seen.contains("up"));
    terminal.types("\x03");
    terminal.until("the signal", |seen| seen.contains("heard"));
    terminal.types("hello\n");
    let (seen, code) = terminal.ends();
    assert!(seen.contains("got hello"), "{seen:?}");
    assert_eq!(seen.matches("heard").count(), 1, "{seen:?}");
    assert_eq!(code, Some(6));
}

#[test]
fn ctrl_z_gives_the_prompt_back_and_fg_goes_on() {
    let (_directory, server) = start();
    let mut terminal = in_a_terminal(&server, &["bash", "--norc", "--noediting", "-i"]);
    terminal.until("the prompt", |seen| seen.contains("$ "));
    terminal.types(&format!("{} run db -- bash -c 'echo up; read line; echo got $line'\n", binary()));
    terminal.until("the command", |seen| seen.contains("up\n"));
    terminal.types("\x1a");
    terminal.until("the prompt", |seen| seen.contains("Stopped"));
    terminal.types("fg\n");
    terminal.types("hello\n");
    terminal.until("the line", |seen| seen.contains("got hello"));
    terminal.types("echo code $?\n");
    terminal.until("the end", |seen| seen.contains("code 0"));
    terminal.types("exit\n");
    assert_eq!(terminal.ends().1, Some(0));
}

#[test]
fn without_a_shell_ctrl_z_stops_nothing_for_ever() {
    let (_directory, server) = start();
    let script = "trap 'on=1' CONT; echo up; until [ $on ]; do sleep 0.02; done; echo on; read line; echo got $line";
    let mut terminal = in_a_terminal(&server, &[binary(), "run", "db", "--", "bash", "-c", script]);
    terminal.until("the command", |seen| seen.contains("up"));
    terminal.types("\x1a");
    terminal.until("the command that goes on", |seen| seen.contains("on\n"));
    terminal.types("hello\n");
    let (seen, code) = terminal.ends();
    assert!(seen.contains("got hello"), "{seen:?}");
    assert_eq!(code, Some(0));
}

#[test]
fn keys_are_for_whoever_reads_them_in_a_pipeline() {
    let (_directory, server) = start();
    let mut terminal = in_a_terminal(&server, &["bash", "--norc", "--noediting", "-i"]);
    terminal.until("the prompt", |seen| seen.contains("$ "));
    let reader = "bash -c 'read from_pipe; read from_keys < /dev/tty; echo $from_pipe and $from_keys'";
    terminal.types(&format!("{} run db -- bash -c 'echo piped; exec sleep 1000' | {reader}\n", binary()));
    terminal.types("typed\n");
    terminal.until("what was typed", |seen| seen.contains("piped and typed"));
    terminal.types("\x03");
    // The other way round, the command asks for the terminal when it needs it.
    terminal.types(&format!("echo piped | {} run db -- {reader}\n", binary()));
    terminal.forget();
    terminal.types("again\n");
    terminal.until("what was typed", |seen| seen.contains("piped and again"));
    terminal.types("exit\n");
    assert_eq!(terminal.ends().1, Some(0));
}
