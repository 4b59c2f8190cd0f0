//! Fuzz tests: random words and files are accepted or rejected.

use super::*;

#[test]
fn fuzz__command_lines_are_understood_or_refused() {
    let corpus: &[&[u8]] = &[
        b"-n 4 prog a b",
        b"-np 2 --timeout 1.5 prog : -n 3 other -x",
        b"--bind-to core -l -n 2 prog",
        b"-H node7,node7:4 prog",
        b"-env A B -genv C=D -n 1 prog",
        b"-x A=B -wdir /tmp -n 1 prog",
        b"--report-bindings --oversubscribe prog",
        b"-f hosts4 -ppn 2 -genvlist A,B -soft 1:9:2 prog",
        b"--map-by ppr:2:socket:pe=2 --bind-to user:0+1,2-3 --rank-by numa:span prog",
        b"-outfile-pattern %r%h --stdin 0,2-3 -n 4 --mca a b prog",
        b"-genv A 1 -configfile programs",
    ];
    crate::mutate::run(corpus, |input| {
        let words = input.split(|&b| b == b' ');
        let words = words.map(|word| OsString::from_vec(word.to_vec()));
        match parse_args(words, &TestNode(&[])) {
            Ok(CommandRequest::Run(spec)) => {
                assert!(!spec.apps.is_empty() && spec.apps.iter().all(|a| !a.argv.is_empty()));
                let ranks: usize = spec.apps.iter().map(|a| a.ranks).sum();
                assert!((1..=MAX_JOB_RANKS).contains(&ranks));
            }
            Ok(_) => {}
            Err(error) => assert!(!error.to_string().is_empty()),
        }
    });
}

/// A node where every file has this text and every name is a name of the node.
struct Text<'a>(&'a [u8]);

impl Surroundings for Text<'_> {
    fn is_here(&self, _: &str) -> bool {
        true
    }

    fn read(&self, _: &Path) -> io::Result<Vec<u8>> {
        Ok(self.0.to_vec())
    }

    fn variable(&self, _: &str) -> Option<String> {
        None
    }

    fn count(&self, _: Level) -> usize {
        4
    }
}

#[test]
fn fuzz__files_of_hosts_and_programs_are_understood_or_refused() {
    let corpus: &[&[u8]] = &[
        b"# c\nnode7 slots=4 max_slots=8\nnode8:3\n[::1]:2 user=me\n",
        b"::1\na slots = 2 # x\nb:4:mlx5_0 binding=user:0,1\n",
        b"# c\n-n 1 -env A 1 a 'b c'\n\n-n 3 \\\n d \"e f\" : -soft 1:3 g\n",
        b"-configfile x\n-genvlist A,B -n 2 a\n",
    ];
    crate::mutate::run(corpus, |input| {
        for option in ["-f", "-configfile"] {
            let words = [option, "x", "a"].map(OsString::from);
            let words = &words[..if option == "-f" { 3 } else { 2 }];
            match parse_args(words.to_vec(), &Text(input)) {
                Ok(CommandRequest::Run(spec)) => assert!(spec.apps.iter().all(|a| a.ranks >= 1)),
                Ok(_) => {}
                Err(error) => assert!(!error.to_string().is_empty()),
            }
        }
    });
}
