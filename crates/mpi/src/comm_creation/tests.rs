//! Tests of communicators that need no messages.
#![allow(unsafe_code)]

use super::*;
use crate::common::consts::MPI_ERRORS_RETURN;
use std::ffi::{c_int, c_void};

/// Makes a process of rank 1 in a world of 3 with the predefined communicators.
fn process() -> Process {
    let p = Process::new();
    errhandler::register_predefined(&p);
    let world = Rc::new(Group::new(vec![0, 1, 2], 1));
    let own = Rc::new(Group::new(vec![1], 1));
    for (handle, context, group, rank) in
        [(MPI_COMM_WORLD, Context::WORLD, world, 1), (MPI_COMM_SELF, Context::SELF, own, 0)]
    {
        let comm = Comm::new(&p, context, group, None, rank);
        comm.handle.set(handle);
        comm.errhandler.set(MPI_ERRORS_RETURN);
        p.comms.insert_predefined(handle, comm);
    }
    p
}

fn code<T: std::fmt::Debug>(result: Result<T>) -> i32 {
    result.unwrap_err().code()
}

#[test]
fn compare__tells_identity_congruence_and_order_apart() {
    let p = process();
    let comm = |ranks: &[u32]| {
        Comm::new(&p, Context::WORLD, Rc::new(Group::new(ranks.to_vec(), 1)), None, 0)
    };
    let inter = |here: &[u32], there: &[u32]| {
        let remote = Some(Rc::new(Group::new(there.to_vec(), 1)));
        Comm::new(&p, Context::WORLD, Rc::new(Group::new(here.to_vec(), 1)), remote, 0)
    };
    let a = comm(&[0, 1]);
    assert_eq!(a.compare(&a), MPI_IDENT);
    assert_eq!(a.compare(&comm(&[0, 1])), MPI_CONGRUENT);
    assert_eq!(a.compare(&comm(&[1, 0])), MPI_SIMILAR);
    assert_eq!(a.compare(&comm(&[1, 2])), MPI_UNEQUAL);
    assert_eq!(a.compare(&inter(&[0, 1], &[2])), MPI_UNEQUAL);
    let b = inter(&[0, 1], &[2, 3]);
    assert_eq!(b.compare(&inter(&[0, 1], &[2, 3])), MPI_CONGRUENT);
    assert_eq!(b.compare(&inter(&[0, 1], &[3, 2])), MPI_SIMILAR);
    assert_eq!(b.compare(&inter(&[0, 1], &[2, 4])), MPI_UNEQUAL);
}

#[test]
fn duplicate__has_its_own_context_and_the_parents_error_handler() {
    let p = process();
    let world = p.comm(MPI_COMM_WORLD).unwrap();
    let handles = [create::duplicate(&p, &world).unwrap(), create::duplicate(&p, &world).unwrap()];
    let [a, b] = handles.map(|handle| p.comm(handle).unwrap());
    assert!(a.context != b.context && a.context != world.context);
    assert_eq!(a.compare(&world), MPI_CONGRUENT);
    assert_eq!((a.rank, a.size(), a.errhandler.get()), (1, 3, MPI_ERRORS_RETURN));
    assert_eq!(a.handle.get(), handles[0]);
    assert!(a.name.borrow().is_empty());
}

#[test]
fn spares__run_out_and_are_refilled() {
    let p = process();
    let own = p.comm(MPI_COMM_SELF).unwrap();
    let mut seen = std::collections::HashSet::from([own.context, Context::WORLD]);
    for _ in 0..100 {
        let handle = create::duplicate(&p, &own).unwrap();
        assert!(seen.insert(p.comm(handle).unwrap().context));
    }
}

#[test]
fn free__takes_the_handle_and_spares_the_predefined() {
    let p = process();
    let own = p.comm(MPI_COMM_SELF).unwrap();
    let handle = create::duplicate(&p, &own).unwrap();
    let kept = p.comm(handle).unwrap();
    free_comm(&p, handle).unwrap();
    assert_eq!(code(free_comm(&p, handle)), MPI_ERR_COMM);
    assert_eq!(kept.size(), 1, "operations under way keep it");
    for predefined in [MPI_COMM_WORLD, MPI_COMM_SELF, MPI_COMM_NULL] {
        assert_eq!(code(free_comm(&p, predefined)), MPI_ERR_COMM);
    }
    disconnect_comm(&p, create::duplicate(&p, &own).unwrap()).unwrap();
}

unsafe extern "C" fn refuse(_: usize, _: c_int, _: *mut c_void, _: *mut c_void) -> c_int {
    MPI_ERR_INTERN
}

unsafe extern "C" fn refuse_copy(
    _: usize, _: c_int, _: *mut c_void, _: *mut c_void, _: *mut c_void, _: *mut c_int,
) -> c_int {
    MPI_ERR_OTHER
}

#[test]
fn user_functions__can_refuse_free_and_duplicate() {
    let p = process();
    let own = p.comm(MPI_COMM_SELF).unwrap();
    let handle = create::duplicate(&p, &own).unwrap();
    let comm = p.comm(handle).unwrap();
    let (copy, delete) = (refuse_copy as *const () as usize, refuse as *const () as usize);
    // SAFETY: the functions have the types that `create_keyval` expects.
    let key = unsafe {
        attribute::create_keyval(
            &p,
            attribute::KeyvalKind::Comm,
            copy,
            delete,
            std::ptr::null_mut(),
        )
    }
    .unwrap();
    attribute::set_attribute(&p, comm.holder(), key, std::ptr::null_mut()).unwrap();
    let before = p.comms.handles().len();
    assert_eq!(code(create::duplicate(&p, &comm)), MPI_ERR_OTHER);
    assert_eq!(code(free_comm(&p, handle)), MPI_ERR_INTERN);
    assert_eq!(p.comms.handles().len(), before);
    assert!(p.comm(handle).is_ok());
}

#[test]
fn create__of_one_process_needs_no_messages() {
    let p = process();
    let own = p.comm(MPI_COMM_SELF).unwrap();
    let handle = create::create(&p, &own, &own.group).unwrap();
    assert_eq!(p.comm(handle).unwrap().compare(&own), MPI_CONGRUENT);
    let handle = create::create_group(&p, &own, &own.group, 7).unwrap();
    assert_ne!(p.comm(handle).unwrap().context, own.context);
    let handle = create::split(&p, &own, 3, -1).unwrap();
    assert_eq!(p.comm(handle).unwrap().size(), 1);
    assert_eq!(create::split(&p, &own, MPI_UNDEFINED, 0).unwrap(), MPI_COMM_NULL);
    let stranger = Rc::new(Group::new(vec![1, 2], 1));
    assert_eq!(code(create::create(&p, &own, &stranger)), MPI_ERR_GROUP);
    assert_eq!(code(create::create_group(&p, &own, &own.group, -1)), MPI_ERR_TAG);
    assert_eq!(code(create::split(&p, &own, -1, 0)), MPI_ERR_ARG);
    let other = Rc::new(Group::new(vec![], 1));
    assert_eq!(create::create(&p, &own, &other).unwrap(), MPI_COMM_NULL);
}

#[test]
fn split_type__knows_the_standards_types() {
    let p = process();
    let own = p.comm(MPI_COMM_SELF).unwrap();
    let split = |kind, key: &str, value: &str| {
        split_type::split_type(&p, &own, kind, 0, &[(key.to_string(), value.to_string())]).unwrap()
            != MPI_COMM_NULL
    };
    let (resource, shared) = ("mpi_hw_resource_type", "mpi_shared_memory");
    assert!(split(MPI_COMM_TYPE_SHARED, "", ""));
    assert!(
        split(MPI_COMM_TYPE_HW_GUIDED, resource, shared)
            && !split(MPI_COMM_TYPE_HW_GUIDED, resource, "x")
    );
    assert!(!split(MPI_COMM_TYPE_HW_UNGUIDED, "", "") && !split(MPI_UNDEFINED, "", ""));
    assert!(split(MPI_COMM_TYPE_RESOURCE_GUIDED, resource, shared));
    assert!(split(MPI_COMM_TYPE_HW_GUIDED, resource, "fastpath://shared_memory"));
    assert!(split(MPI_COMM_TYPE_RESOURCE_GUIDED, "mpi_pset_name", "mpi://SELF"));
    assert!(!split(MPI_COMM_TYPE_RESOURCE_GUIDED, "", ""));
    assert_eq!(code(split_type::split_type(&p, &own, 5, 0, &[])), MPI_ERR_ARG);
}
