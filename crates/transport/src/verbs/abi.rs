//! C interface of verbs: structures and constants of `<infiniband/verbs.h>` (rdma-core 1.1 ABI).
//!
//! Names are those of the header without `ibv_`. `layout_tests.rs` compares every structure and constant with the
//! installed header. Unused fields only reserve their size.
#![allow(unsafe_code)]

use libc::{c_char, c_int, c_uint, c_void, pthread_cond_t, pthread_mutex_t, size_t};
use std::ptr::null_mut;

/// Function pointer that is never called.
pub type UnusedFn = *const c_void;

/// A global identifier: an IPv6 address, or `::ffff:a.b.c.d`.
#[repr(C, align(8))]
#[derive(Clone, Copy, PartialEq, Eq, Default, Hash)]
pub struct Gid {
    /// Bytes in network order.
    pub raw: [u8; 16],
}

/// One row of a port's GID table.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GidEntry {
    pub gid: Gid,
    pub gid_index: u32,
    pub port_num: u32,
    /// Type: one of `GID_TYPE_*`.
    pub gid_type: u32,
    pub ndev_ifindex: u32,
}

pub const GID_TYPE_IB: u32 = 0;
pub const GID_TYPE_ROCE_V1: u32 = 1;
pub const GID_TYPE_ROCE_V2: u32 = 2;

/// A device, owned by the library.
#[repr(C)]
pub struct Device {
    pub ops: [UnusedFn; 2],
    pub node_type: c_int,
    pub transport_type: c_int,
    pub name: [c_char; 64],
    pub dev_name: [c_char; 64],
    pub dev_path: [c_char; 256],
    pub ibdev_path: [c_char; 256],
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct DeviceAttr {
    pub fw_ver: [c_char; 64],
    pub node_guid: u64,
    pub sys_image_guid: u64,
    pub max_mr_size: u64,
    pub page_size_cap: u64,
    pub vendor_id: u32,
    pub vendor_part_id: u32,
    pub hw_ver: u32,
    pub max_qp: c_int,
    pub max_qp_wr: c_int,
    pub device_cap_flags: c_uint,
    pub max_sge: c_int,
    pub max_sge_rd: c_int,
    pub max_cq: c_int,
    pub max_cqe: c_int,
    pub max_mr: c_int,
    pub max_pd: c_int,
    pub max_qp_rd_atom: c_int,
    pub max_ee_rd_atom: c_int,
    pub max_res_rd_atom: c_int,
    pub max_qp_init_rd_atom: c_int,
    pub max_ee_init_rd_atom: c_int,
    pub atomic_cap: c_int,
    pub max_ee: c_int,
    pub max_rdd: c_int,
    pub max_mw: c_int,
    pub max_raw_ipv6_qp: c_int,
    pub max_raw_ethy_qp: c_int,
    pub max_mcast_grp: c_int,
    pub max_mcast_qp_attach: c_int,
    pub max_total_mcast_qp_attach: c_int,
    pub max_ah: c_int,
    pub max_fmr: c_int,
    pub max_map_per_fmr: c_int,
    pub max_srq: c_int,
    pub max_srq_wr: c_int,
    pub max_srq_sge: c_int,
    pub max_pkeys: u16,
    pub local_ca_ack_delay: u8,
    pub phys_port_cnt: u8,
}

pub const ATOMIC_NONE: c_int = 0;

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct PortAttr {
    /// State: one of `PORT_*`.
    pub state: c_int,
    /// Maximum MTU: one of `MTU_*`.
    pub max_mtu: c_int,
    pub active_mtu: c_int,
    pub gid_tbl_len: c_int,
    pub port_cap_flags: u32,
    pub max_msg_sz: u32,
    pub bad_pkey_cntr: u32,
    pub qkey_viol_cntr: u32,
    pub pkey_tbl_len: u16,
    pub lid: u16,
    pub sm_lid: u16,
    pub lmc: u8,
    pub max_vl_num: u8,
    pub sm_sl: u8,
    pub subnet_timeout: u8,
    pub init_type_reply: u8,
    pub active_width: u8,
    pub active_speed: u8,
    pub phys_state: u8,
    /// Link layer: one of `LINK_LAYER_*`.
    pub link_layer: u8,
    pub flags: u8,
    pub port_cap_flags2: u16,
}

pub const PORT_ACTIVE: c_int = 4;
pub const LINK_LAYER_INFINIBAND: u8 = 1;
pub const LINK_LAYER_ETHERNET: u8 = 2;
pub const MTU_256: c_int = 1;
pub const MTU_1024: c_int = 3;
pub const MTU_4096: c_int = 5;

/// Functions of the provider. The header's inline functions for the hot calls call them.
#[repr(C)]
pub struct ContextOps {
    pub compat_query_device: UnusedFn,
    pub compat_query_port: UnusedFn,
    pub compat_alloc_pd: UnusedFn,
    pub compat_dealloc_pd: UnusedFn,
    pub compat_reg_mr: UnusedFn,
    pub compat_rereg_mr: UnusedFn,
    pub compat_dereg_mr: UnusedFn,
    pub alloc_mw: Option<unsafe extern "C" fn(*mut Pd, c_int) -> *mut Mw>,
    pub bind_mw: UnusedFn,
    pub dealloc_mw: Option<unsafe extern "C" fn(*mut Mw) -> c_int>,
    pub compat_create_cq: UnusedFn,
    pub poll_cq: Option<unsafe extern "C" fn(*mut Cq, c_int, *mut Wc) -> c_int>,
    pub req_notify_cq: Option<unsafe extern "C" fn(*mut Cq, c_int) -> c_int>,
    pub compat_cq_event: UnusedFn,
    pub compat_resize_cq: UnusedFn,
    pub compat_destroy_cq: UnusedFn,
    pub compat_create_srq: UnusedFn,
    pub compat_modify_srq: UnusedFn,
    pub compat_query_srq: UnusedFn,
    pub compat_destroy_srq: UnusedFn,
    pub post_srq_recv:
        Option<unsafe extern "C" fn(*mut Srq, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    pub compat_create_qp: UnusedFn,
    pub compat_query_qp: UnusedFn,
    pub compat_modify_qp: UnusedFn,
    pub compat_destroy_qp: UnusedFn,
    pub post_send: Option<unsafe extern "C" fn(*mut Qp, *mut SendWr, *mut *mut SendWr) -> c_int>,
    pub post_recv: Option<unsafe extern "C" fn(*mut Qp, *mut RecvWr, *mut *mut RecvWr) -> c_int>,
    pub compat_create_ah: UnusedFn,
    pub compat_destroy_ah: UnusedFn,
    pub compat_attach_mcast: UnusedFn,
    pub compat_detach_mcast: UnusedFn,
    pub compat_async_event: UnusedFn,
}

/// An open device.
#[repr(C)]
pub struct Context {
    pub device: *mut Device,
    pub ops: ContextOps,
    pub cmd_fd: c_int,
    pub async_fd: c_int,
    pub num_comp_vectors: c_int,
    pub mutex: pthread_mutex_t,
    /// All bits of this field are set if this structure is the end of a [`ContextTail`].
    pub abi_compat: *mut c_void,
}

/// Last fields of `struct verbs_context`, before its [`Context`]. Releases add fields at the start of that structure;
/// `size` is its total size.
#[repr(C)]
pub struct ContextTail {
    pub query_port: Option<unsafe extern "C" fn(*mut Context, u8, *mut PortAttr, size_t) -> c_int>,
    pub between: [UnusedFn; 37],
    pub placeholder: u64,
    pub size: size_t,
    pub context: Context,
}

#[repr(C)]
pub struct Pd {
    pub context: *mut Context,
    pub handle: u32,
}

#[repr(C)]
pub struct Mr {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub addr: *mut c_void,
    pub length: size_t,
    pub handle: u32,
    pub lkey: u32,
    pub rkey: u32,
}

pub const ACCESS_LOCAL_WRITE: c_int = 1;
pub const ACCESS_REMOTE_WRITE: c_int = 1 << 1;
pub const ACCESS_REMOTE_READ: c_int = 1 << 2;
pub const ACCESS_REMOTE_ATOMIC: c_int = 1 << 3;
pub const ACCESS_MW_BIND: c_int = 1 << 4;

/// A memory window.
#[repr(C)]
pub struct Mw {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub rkey: u32,
    pub handle: u32,
    /// Type: one of `MW_TYPE_*`.
    pub mw_type: c_int,
}

pub const MW_TYPE_2: c_int = 2;

#[repr(C)]
pub struct CompChannel {
    pub context: *mut Context,
    pub fd: c_int,
    pub refcnt: c_int,
}

#[repr(C)]
pub struct Cq {
    pub context: *mut Context,
    pub channel: *mut CompChannel,
    pub cq_context: *mut c_void,
    pub handle: u32,
    pub cqe: c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub comp_events_completed: u32,
    pub async_events_completed: u32,
}

#[repr(C)]
pub struct Srq {
    pub context: *mut Context,
    pub srq_context: *mut c_void,
    pub pd: *mut Pd,
    pub handle: u32,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct SrqAttr {
    pub max_wr: u32,
    pub max_sge: u32,
    pub srq_limit: u32,
}

#[repr(C)]
pub struct SrqInitAttr {
    pub srq_context: *mut c_void,
    pub attr: SrqAttr,
}

#[repr(C)]
pub struct Qp {
    pub context: *mut Context,
    pub qp_context: *mut c_void,
    pub pd: *mut Pd,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub handle: u32,
    pub qp_num: u32,
    pub state: c_int,
    pub qp_type: c_int,
    pub mutex: pthread_mutex_t,
    pub cond: pthread_cond_t,
    pub events_completed: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QpCap {
    pub max_send_wr: u32,
    pub max_recv_wr: u32,
    pub max_send_sge: u32,
    pub max_recv_sge: u32,
    pub max_inline_data: u32,
}

#[repr(C)]
pub struct QpInitAttr {
    pub qp_context: *mut c_void,
    pub send_cq: *mut Cq,
    pub recv_cq: *mut Cq,
    pub srq: *mut Srq,
    pub cap: QpCap,
    pub qp_type: c_int,
    pub sq_sig_all: c_int,
}

pub const QPT_RC: c_int = 2;
pub const QPT_UD: c_int = 4;

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct GlobalRoute {
    pub dgid: Gid,
    pub flow_label: u32,
    pub sgid_index: u8,
    pub hop_limit: u8,
    pub traffic_class: u8,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AhAttr {
    pub grh: GlobalRoute,
    pub dlid: u16,
    pub sl: u8,
    pub src_path_bits: u8,
    pub static_rate: u8,
    pub is_global: u8,
    pub port_num: u8,
}

#[repr(C)]
pub struct Ah {
    pub context: *mut Context,
    pub pd: *mut Pd,
    pub handle: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct QpAttr {
    pub qp_state: c_int,
    pub cur_qp_state: c_int,
    pub path_mtu: c_int,
    pub path_mig_state: c_int,
    pub qkey: u32,
    pub rq_psn: u32,
    pub sq_psn: u32,
    pub dest_qp_num: u32,
    pub qp_access_flags: c_uint,
    pub cap: QpCap,
    pub ah_attr: AhAttr,
    pub alt_ah_attr: AhAttr,
    pub pkey_index: u16,
    pub alt_pkey_index: u16,
    pub en_sqd_async_notify: u8,
    pub sq_draining: u8,
    pub max_rd_atomic: u8,
    pub max_dest_rd_atomic: u8,
    pub min_rnr_timer: u8,
    pub port_num: u8,
    pub timeout: u8,
    pub retry_cnt: u8,
    pub rnr_retry: u8,
    pub alt_port_num: u8,
    pub alt_timeout: u8,
    pub rate_limit: u32,
}

pub const QPS_RESET: c_int = 0;
pub const QPS_INIT: c_int = 1;
pub const QPS_RTR: c_int = 2;
pub const QPS_RTS: c_int = 3;
pub const QPS_SQE: c_int = 5;
pub const QPS_ERR: c_int = 6;

pub const QP_STATE: c_int = 1;
pub const QP_ACCESS_FLAGS: c_int = 1 << 3;
pub const QP_PKEY_INDEX: c_int = 1 << 4;
pub const QP_PORT: c_int = 1 << 5;
pub const QP_QKEY: c_int = 1 << 6;
pub const QP_AV: c_int = 1 << 7;
pub const QP_PATH_MTU: c_int = 1 << 8;
pub const QP_TIMEOUT: c_int = 1 << 9;
pub const QP_RETRY_CNT: c_int = 1 << 10;
pub const QP_RNR_RETRY: c_int = 1 << 11;
pub const QP_RQ_PSN: c_int = 1 << 12;
pub const QP_MAX_QP_RD_ATOMIC: c_int = 1 << 13;
pub const QP_MIN_RNR_TIMER: c_int = 1 << 15;
pub const QP_SQ_PSN: c_int = 1 << 16;
pub const QP_MAX_DEST_RD_ATOMIC: c_int = 1 << 17;
pub const QP_CAP: c_int = 1 << 19;
pub const QP_DEST_QPN: c_int = 1 << 20;

/// Memory segment of a work request.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Sge {
    pub addr: u64,
    pub length: u32,
    pub lkey: u32,
}

impl Sge {
    /// Segment of `len` bytes at `at`, in memory with key `lkey`. Inline data needs no key.
    #[inline]
    pub fn over(at: *const u8, len: usize, lkey: u32) -> Self {
        Sge { addr: at.expose_provenance() as u64, length: len as u32, lkey }
    }
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct RecvWr {
    pub wr_id: u64,
    pub next: *mut RecvWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
}

#[repr(C)]
#[derive(Clone, Copy)]
pub struct SendWr {
    pub wr_id: u64,
    pub next: *mut SendWr,
    pub sg_list: *mut Sge,
    pub num_sge: c_int,
    /// Operation: one of `WR_*`.
    pub opcode: c_int,
    /// Bits of `SEND_*`.
    pub send_flags: c_uint,
    /// Immediate data in network byte order, or the key to invalidate.
    pub imm_data: u32,
    pub wr: SendWrTo,
    pub xrc_remote_srqn: u32,
    pub bind: BindTo,
}

/// Target of a send. The operation selects the member.
#[repr(C)]
#[derive(Clone, Copy)]
pub union SendWrTo {
    pub rdma: RdmaTo,
    pub atomic: AtomicTo,
    pub ud: UdTo,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct RdmaTo {
    pub remote_addr: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct AtomicTo {
    pub remote_addr: u64,
    pub compare_add: u64,
    pub swap: u64,
    pub rkey: u32,
}

#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct UdTo {
    pub ah: *mut Ah,
    pub remote_qpn: u32,
    pub remote_qkey: u32,
}

/// Binding of a memory window.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct BindTo {
    pub mw: *mut Mw,
    /// New key of the window.
    pub rkey: u32,
    pub mr: *mut Mr,
    pub addr: u64,
    pub length: u64,
    pub access: c_uint,
}

impl BindTo {
    /// Value of the field for operations other than a binding.
    pub const NOTHING: BindTo =
        BindTo { mw: null_mut(), rkey: 0, mr: null_mut(), addr: 0, length: 0, access: 0 };
}

pub const WR_RDMA_WRITE: c_int = 0;
pub const WR_RDMA_WRITE_WITH_IMM: c_int = 1;
pub const WR_SEND: c_int = 2;
pub const WR_SEND_WITH_IMM: c_int = 3;
pub const WR_RDMA_READ: c_int = 4;
pub const WR_ATOMIC_CMP_AND_SWP: c_int = 5;
pub const WR_ATOMIC_FETCH_AND_ADD: c_int = 6;
pub const WR_BIND_MW: c_int = 8;
pub const WR_SEND_WITH_INV: c_int = 9;

pub const SEND_FENCE: c_uint = 1;
pub const SEND_SIGNALED: c_uint = 1 << 1;
pub const SEND_SOLICITED: c_uint = 1 << 2;
pub const SEND_INLINE: c_uint = 1 << 3;

/// A completion.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default)]
pub struct Wc {
    pub wr_id: u64,
    /// Status: one of `WC_*`, 0 for success.
    pub status: c_int,
    /// Operation: one of `WC_OP_*`; valid on success only.
    pub opcode: c_int,
    pub vendor_err: u32,
    pub byte_len: u32,
    /// Immediate data in network byte order; valid with `WC_WITH_IMM`.
    pub imm_data: u32,
    pub qp_num: u32,
    pub src_qp: u32,
    pub wc_flags: c_uint,
    pub pkey_index: u16,
    pub slid: u16,
    pub sl: u8,
    pub dlid_path_bits: u8,
}

pub const WC_SUCCESS: c_int = 0;
pub const WC_LOC_LEN_ERR: c_int = 1;
pub const WC_LOC_QP_OP_ERR: c_int = 2;
pub const WC_LOC_PROT_ERR: c_int = 4;
pub const WC_WR_FLUSH_ERR: c_int = 5;
pub const WC_MW_BIND_ERR: c_int = 6;
pub const WC_LOC_ACCESS_ERR: c_int = 8;
pub const WC_REM_INV_REQ_ERR: c_int = 9;
pub const WC_REM_ACCESS_ERR: c_int = 10;
pub const WC_REM_OP_ERR: c_int = 11;
pub const WC_RETRY_EXC_ERR: c_int = 12;
pub const WC_RNR_RETRY_EXC_ERR: c_int = 13;
pub const WC_FATAL_ERR: c_int = 19;

pub const WC_OP_SEND: c_int = 0;
pub const WC_OP_RDMA_WRITE: c_int = 1;
pub const WC_OP_RDMA_READ: c_int = 2;
pub const WC_OP_COMP_SWAP: c_int = 3;
pub const WC_OP_FETCH_ADD: c_int = 4;
pub const WC_OP_BIND_MW: c_int = 5;
pub const WC_OP_RECV: c_int = 1 << 7;
pub const WC_OP_RECV_RDMA_WITH_IMM: c_int = (1 << 7) + 1;

pub const WC_GRH: c_uint = 1;
pub const WC_WITH_IMM: c_uint = 1 << 1;
pub const WC_WITH_INV: c_uint = 1 << 3;

/// Event of a device, a port, or a queue. The first field is a union of pointers and the port.
#[repr(C)]
#[derive(Clone, Copy, Debug)]
pub struct AsyncEvent {
    pub element: u64,
    /// Type: one of `EVENT_*`.
    pub event_type: c_int,
}

pub const EVENT_CQ_ERR: c_int = 0;
pub const EVENT_QP_FATAL: c_int = 1;
pub const EVENT_QP_REQ_ERR: c_int = 2;
pub const EVENT_QP_ACCESS_ERR: c_int = 3;
pub const EVENT_DEVICE_FATAL: c_int = 8;
pub const EVENT_PORT_ACTIVE: c_int = 9;
pub const EVENT_PORT_ERR: c_int = 10;
pub const EVENT_LID_CHANGE: c_int = 11;
pub const EVENT_PKEY_CHANGE: c_int = 12;
pub const EVENT_SRQ_ERR: c_int = 14;
pub const EVENT_GID_CHANGE: c_int = 18;
pub const EVENT_WQ_FATAL: c_int = 19;
