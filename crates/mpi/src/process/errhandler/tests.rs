//! Tests of error handlers. The handlers store their arguments in a variable of the thread.

use super::*;
use crate::objects::comm;
use crate::objects::group::Group;
use fastpath_protocol::tag::Context;
use std::cell::RefCell;
use std::ffi::c_int;

thread_local!(static SEEN: RefCell<Vec<(usize, i32)>> = const { RefCell::new(Vec::new()) });

// A C compiler passes only the fixed arguments and, on x86-64, the number of vector registers in use. A function with
// only fixed arguments accepts such a call too.
unsafe extern "C" fn note(object: *mut usize, code: *mut c_int) {
    // SAFETY: the caller passes pointers to valid variables.
    SEEN.with_borrow_mut(|seen| seen.push(unsafe { (*object, *code) }));
}

fn seen() -> Vec<(usize, i32)> {
    SEEN.take()
}

const NOTE: unsafe extern "C" fn(*mut usize, *mut c_int) = note;

fn handler(p: &Process, kind: HandlerKind) -> usize {
    // SAFETY: the function takes the fixed arguments of an error handler.
    unsafe { create_errhandler(p, kind, NOTE as usize) }.unwrap()
}

/// Makes a process with `MPI_COMM_SELF`, which returns errors, and a communicator with the default handler.
fn process() -> (Process, Rc<Comm>) {
    let p = Process::new();
    register_predefined(&p);
    let group = Rc::new(Group::new(vec![0], 0));
    let own = Comm::new(&p, Context::SELF, group.clone(), None, 0);
    own.handle.set(MPI_COMM_SELF);
    own.errhandler.set(MPI_ERRORS_RETURN);
    p.comms.insert_predefined(MPI_COMM_SELF, own);
    note_set(&p, MPI_COMM_SELF);
    let comm = Rc::new(Comm::new(&p, Context::from_leader(0, 9), group, None, 0));
    comm.handle.set(p.comms.insert_rc(comm.clone()).unwrap());
    (p, comm)
}

#[test]
fn user_handler__gets_the_object_and_the_code() {
    let (p, comm) = process();
    let handle = handler(&p, HandlerKind::Comm);
    set_errhandler(&p, HandlerKind::Comm, &comm.errhandler, handle).unwrap();
    let scope = Scope::Comm(comm.handle.get());
    assert_eq!(raise(Some(&p), scope, "MPI_Send", Error::new(MPI_ERR_RANK, "no")), MPI_ERR_RANK);
    assert_eq!(seen(), [(comm.handle.get(), MPI_ERR_RANK)]);
    assert!(p.codes.text(MPI_ERR_RANK).contains("MPI_Send: no"));
    call_errhandler(&p, scope, "MPI_Comm_call_errhandler", MPI_SUCCESS);
    assert_eq!(seen(), []);
    call_errhandler(&p, scope, "MPI_Comm_call_errhandler", MPI_ERR_OTHER);
    assert_eq!(seen(), [(comm.handle.get(), MPI_ERR_OTHER)]);
}

#[test]
fn errors_without_a_living_object__go_to_comm_self() {
    let (p, comm) = process();
    let own = p.comms.get(MPI_COMM_SELF).unwrap();
    set_errhandler(&p, HandlerKind::Comm, &own.errhandler, handler(&p, HandlerKind::Comm)).unwrap();
    let stale = comm.handle.get();
    p.comms.remove(stale);
    for scope in [Scope::None, Scope::Comm(stale), Scope::Comm(MPI_COMM_NULL), Scope::Comm(0)] {
        raise(Some(&p), scope, "MPI_Barrier", Error::new(MPI_ERR_COMM, "no"));
        assert_eq!(seen(), [(MPI_COMM_SELF, MPI_ERR_COMM)]);
    }
}

#[test]
fn errors_of_no_object__go_to_comm_world_until_comm_self_has_a_handler_of_the_program() {
    let (p, _) = process();
    p.own_handler_is_set.set(false);
    let group = Rc::new(Group::new(vec![0], 0));
    let world = Comm::new(&p, Context::WORLD, group, None, 0);
    world.handle.set(MPI_COMM_WORLD);
    p.comms.insert_predefined(MPI_COMM_WORLD, world);
    let set = |comm: usize, handler: usize| {
        let place = p.comms.get(comm).unwrap();
        set_errhandler(&p, HandlerKind::Comm, &place.errhandler, handler).unwrap();
        note_set(&p, comm);
    };
    let fail = || {
        let error = Error::new(MPI_ERR_TYPE, "no");
        raise(Some(&p), Scope::None, "MPI_Type_commit", error)
    };
    set(MPI_COMM_WORLD, handler(&p, HandlerKind::Comm));
    assert_eq!((fail(), seen()), (MPI_ERR_TYPE, vec![(MPI_COMM_WORLD, MPI_ERR_TYPE)]));
    set(MPI_COMM_SELF, MPI_ERRORS_RETURN);
    assert_eq!((fail(), seen()), (MPI_ERR_TYPE, vec![]));
}

#[test]
fn on_comm__overrides_the_arguments() {
    let (p, comm) = process();
    set_errhandler(&p, HandlerKind::Comm, &comm.errhandler, handler(&p, HandlerKind::Comm))
        .unwrap();
    let error = Error::new(MPI_ERR_TRUNCATE, "long").on_comm(comm.handle.get());
    raise(Some(&p), Scope::None, "MPI_Wait", error);
    assert_eq!(seen(), [(comm.handle.get(), MPI_ERR_TRUNCATE)]);
}

#[test]
fn handler__lives_while_it_is_held_or_attached() {
    let (p, comm) = process();
    let handle = handler(&p, HandlerKind::Comm);
    set_errhandler(&p, HandlerKind::Comm, &comm.errhandler, handle).unwrap();
    free_errhandler(&p, handle).unwrap();
    assert!(free_errhandler(&p, handle).is_err());
    assert_eq!(get_errhandler(&p, &comm.errhandler), handle);
    set_errhandler(&p, HandlerKind::Comm, &comm.errhandler, MPI_ERRORS_RETURN).unwrap();
    find_errhandler(&p, handle).unwrap();
    free_errhandler(&p, handle).unwrap();
    assert_eq!(find_errhandler(&p, handle).unwrap_err().code(), MPI_ERR_ERRHANDLER);
    for _ in 0..3 {
        assert_eq!(get_errhandler(&p, &comm.errhandler), MPI_ERRORS_RETURN);
        free_errhandler(&p, MPI_ERRORS_RETURN).unwrap();
    }
}

#[test]
fn handler__of_another_kind_is_refused() {
    let (p, comm) = process();
    let handle = handler(&p, HandlerKind::Win);
    for bad in [handle, MPI_ERRHANDLER_NULL, 0, 1 << 30] {
        let error = set_errhandler(&p, HandlerKind::Comm, &comm.errhandler, bad).unwrap_err();
        assert_eq!(error.code(), MPI_ERR_ERRHANDLER);
    }
    // SAFETY: the contract allows null.
    let result = unsafe { create_errhandler(&p, HandlerKind::Comm, 0) };
    assert_eq!(result.unwrap_err().code(), MPI_ERR_ARG);
}

#[test]
fn files__return_errors_by_default() {
    let (p, _) = process();
    let own = p.comms.get(MPI_COMM_SELF).unwrap();
    own.errhandler.set(MPI_ERRORS_ARE_FATAL);
    let error = Error::new(MPI_ERR_FILE, "no");
    assert_eq!(raise(Some(&p), Scope::File(MPI_FILE_NULL), "MPI_File_read", error), MPI_ERR_FILE);
}

#[test]
fn report__says_all_that_is_known() {
    let (p, comm) = process();
    let world = Comm::new(&p, Context::WORLD, Rc::new(Group::new(vec![0, 1, 2], 1)), None, 1);
    p.comms.insert_predefined(MPI_COMM_WORLD, world);
    *comm.name.borrow_mut() = "mine".into();
    let error = Error::new(MPI_ERR_TRUNCATE, "16 bytes arrived").about_message(2, MPI_ANY_TAG, 8);
    let text = report::describe(&p, "MPI_Recv", &error, Some(&comm));
    let host = report::host_name();
    for part in [
        "MPI_Recv",
        "rank 1 of 3",
        &host,
        "MPI_ERR_TRUNCATE",
        "16 bytes arrived",
        "peer rank 2",
        "MPI_ANY_TAG",
        "8 bytes",
        "mine, 1 rank, this process",
        "to do:",
        &std::process::id().to_string(),
    ] {
        assert!(text.contains(part), "{part} is not in\n{text}");
    }
    let error = Error::new(MPI_ERR_TRUNCATE, "why").about_message(2, comm::FIRST_TAG - 1, 8);
    let collective = report::describe(&p, "MPI_Bcast", &error, Some(&comm));
    assert!(collective.contains("peer rank 2, 8 bytes"), "{collective}");
    assert!(!collective.contains("to do:"), "{collective}");
    assert!(text.ends_with('\n') && text.lines().all(|line| line.starts_with("fastpath: ")));
    let class = p.codes.add_class().unwrap();
    let text = report::describe(&p, "MPI_Comm_call_errhandler", &Error::new(class, ""), None);
    assert!(text.contains(&format!("code {class}, added by the program")));
}

#[test]
fn report__of_an_added_code_has_its_text_and_no_remedy_of_the_class() {
    let (p, comm) = process();
    let code = p.codes.add_code(MPI_ERR_BUFFER).unwrap();
    let report = || report::describe(&p, "MPI_Isend", &raised_error(&p, code), Some(&comm));
    assert!(report().contains("the program raised this error itself"), "{}", report());
    assert!(report().contains("to do:"), "{}", report());
    p.codes.set_text(code, "MPI_Isend: buf is a section: pass a contiguous array").unwrap();
    assert!(report().contains("pass a contiguous array"), "{}", report());
    assert!(!report().contains("raised") && !report().contains("to do:"), "{}", report());
}
