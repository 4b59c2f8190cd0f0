use super::*;

fn requests() -> Vec<Request> {
    let program = Program {
        argv: vec![b"prog".to_vec(), b"".to_vec(), b"\xff".to_vec()],
        counts: vec![3, 1],
        wdir: Some(b"/tmp".to_vec()),
        path: None,
        host: Some(b"localhost".to_vec()),
    };
    let other = program.clone();
    let foreign = Foreign {
        origin: Origin { job: 0x0123_4567_89ab_cdef, rank: 3 },
        host: 1,
        card: vec![1, 2, 3],
    };
    let failure = WorldFailure { world: 2, rank: 3, code: 137, is_late: true };
    let (service, port) = (b"ocean".to_vec(), b"a port".to_vec());
    vec![
        Request::Spawn { root: 2, programs: vec![program.clone(), program] },
        Request::Publish { owner: 1, service: service.clone(), port: port.clone() },
        Request::Lookup { service: service.clone() },
        Request::Unpublish { service, port },
        Request::Knock { rank: 3, number: 1, caller: 1 << 16 | 2, visit: PortRequest::Leaves },
        Request::Forget { owner: 3 },
        Request::Stay,
        Request::Input,
        Request::Prepare { nodes: vec![0, 1], programs: vec![other] },
        Request::Add {
            root: 1,
            first: 4,
            counts: vec![2],
            nodes: vec![0, 1],
            cards: vec![vec![1, 2], Vec::new()],
        },
        Request::GiveUp { first: 4 },
        Request::Number { foreign: vec![foreign.clone()] },
        Request::AddForeign { first: 4, foreign: vec![foreign.clone(), foreign] },
        Request::Failed(failure),
        Request::Worlds,
        Request::End { worlds: vec![0, 4], failure },
        Request::Died { rank: 5 },
    ]
}

fn answers() -> Vec<Answer> {
    vec![
        Answer::Spawned { first: 4, counts: vec![2, 1] },
        Answer::Done,
        Answer::Found { port: b"a port".to_vec() },
        Answer::refuse(Cause::Name, "no such name"),
        Answer::Knocked(CallOutcome::Stands),
        Answer::Ready { cards: vec![vec![7], Vec::new()] },
        Answer::Numbered { ranks: vec![4, 5] },
        Answer::Worlds { linked: vec![0, 4], going_on: vec![2] },
    ]
}

#[test]
fn messages__come_back_as_they_were() {
    for request in requests() {
        assert_eq!(Request::decode(&request.encode()), Some(request));
    }
    for answer in answers() {
        assert_eq!(Answer::decode(&answer.encode()), Some(answer));
    }
}

#[test]
fn messages__that_are_cut_or_go_on_are_refused() {
    for bytes in requests().iter().map(Request::encode) {
        assert!((0..bytes.len()).all(|end| Request::decode(&bytes[..end]).is_none()));
        assert_eq!(Request::decode(&[&bytes[..], &[0]].concat()), None);
    }
    for bytes in answers().iter().map(Answer::encode) {
        assert!((0..bytes.len()).all(|end| Answer::decode(&bytes[..end]).is_none()));
    }
    let nothing = Request::Spawn { root: 0, programs: vec![Program::default()] };
    assert_eq!(Request::decode(&nothing.encode()), None);
}

#[test]
fn fuzz__messages_are_understood_or_refused() {
    let all: Vec<Vec<u8>> = (requests().iter().map(Request::encode))
        .chain(answers().iter().map(Answer::encode))
        .collect();
    let corpus: Vec<&[u8]> = all.iter().map(Vec::as_slice).collect();
    crate::mutate::run(&corpus, |input| {
        if let Some(request) = Request::decode(input) {
            assert_eq!(request.encode(), input);
        }
        if let Some(answer) = Answer::decode(input) {
            assert_eq!(answer.encode(), input);
        }
    });
}
