//! Compares the structures of [`super::abi`] with the installed `<infiniband/verbs.h>`. A small C program prints sizes,
//! offsets and constants, which must be equal.
#![allow(non_snake_case)]

use super::abi::*;
use std::fmt::Write;
use std::mem::offset_of;
use std::process::Command;

/// Compared values: the C expression and its value in Rust.
struct LayoutTable(Vec<(String, u64)>);

macro_rules! structures {
    ($table:ident; $($c:literal => $rust:ident { $($field:ident $(. $inner:ident)* $(= $c_field:literal)?),* $(,)? })*) => {
        $(
            $table.size($c, size_of::<$rust>(), align_of::<$rust>());
            $($table.offset(
                $c,
                [$($c_field,)? concat!(stringify!($field) $(, ".", stringify!($inner))*)][0],
                offset_of!($rust, $field $(. $inner)*),
            );)*
        )*
    };
}

macro_rules! constants {
    ($table:ident; $($rust:ident $(= $c:literal)?),* $(,)?) => {
        $($table.0.push(([$($c.to_owned(),)? concat!("IBV_", stringify!($rust)).to_owned()][0].clone(), $rust as u64));)*
    };
}

impl LayoutTable {
    fn size(&mut self, c: &str, size: usize, align: usize) {
        self.0.push((format!("sizeof({c})"), size as u64));
        self.0.push((format!("_Alignof({c})"), align as u64));
    }

    fn offset(&mut self, c: &str, field: &str, offset: usize) {
        self.0.push((format!("offsetof({c}, {field})"), offset as u64));
    }
}

fn table() -> LayoutTable {
    let mut table = LayoutTable(Vec::new());
    structures! { table;
        "union ibv_gid" => Gid { raw }
        "struct ibv_gid_entry" => GidEntry { gid, gid_index, port_num, gid_type, ndev_ifindex }
        "struct ibv_device" => Device { node_type, transport_type, name, dev_name, dev_path, ibdev_path }
        "struct ibv_device_attr" => DeviceAttr {
            fw_ver, node_guid, max_mr_size, vendor_id, max_qp, max_qp_wr, device_cap_flags, max_sge, max_cqe,
            max_qp_rd_atom, max_qp_init_rd_atom, atomic_cap, max_ah, max_srq, max_srq_wr, max_srq_sge, max_pkeys, phys_port_cnt,
        }
        "struct ibv_port_attr" => PortAttr {
            state, max_mtu, active_mtu, gid_tbl_len, max_msg_sz, pkey_tbl_len, lid, active_width, active_speed,
            phys_state, link_layer, flags, port_cap_flags2,
        }
        "struct ibv_context_ops" => ContextOps { alloc_mw, dealloc_mw, poll_cq, req_notify_cq, post_srq_recv, post_send, post_recv }
        "struct ibv_context" => Context { device, ops, cmd_fd, async_fd, num_comp_vectors, mutex, abi_compat }
        "struct verbs_context" => ContextTail { query_port, size = "sz", context }
        "struct ibv_pd" => Pd { context, handle }
        "struct ibv_mr" => Mr { context, pd, addr, length, handle, lkey, rkey }
        "struct ibv_mw" => Mw { context, pd, rkey, handle, mw_type = "type" }
        "struct ibv_comp_channel" => CompChannel { context, fd, refcnt }
        "struct ibv_cq" => Cq { context, channel, cq_context, handle, cqe, mutex, cond, comp_events_completed }
        "struct ibv_srq" => Srq { context, srq_context, pd, handle, mutex, cond, events_completed }
        "struct ibv_srq_attr" => SrqAttr { max_wr, max_sge, srq_limit }
        "struct ibv_srq_init_attr" => SrqInitAttr { srq_context, attr }
        "struct ibv_qp" => Qp {
            context, qp_context, pd, send_cq, recv_cq, srq, handle, qp_num, state, qp_type, mutex, cond, events_completed,
        }
        "struct ibv_qp_cap" => QpCap { max_send_wr, max_recv_wr, max_send_sge, max_recv_sge, max_inline_data }
        "struct ibv_qp_init_attr" => QpInitAttr { qp_context, send_cq, recv_cq, srq, cap, qp_type, sq_sig_all }
        "struct ibv_global_route" => GlobalRoute { dgid, flow_label, sgid_index, hop_limit, traffic_class }
        "struct ibv_ah_attr" => AhAttr { grh, dlid, sl, src_path_bits, static_rate, is_global, port_num }
        "struct ibv_ah" => Ah { context, pd, handle }
        "struct ibv_qp_attr" => QpAttr {
            qp_state, cur_qp_state, path_mtu, path_mig_state, qkey, rq_psn, sq_psn, dest_qp_num, qp_access_flags, cap,
            ah_attr, alt_ah_attr, pkey_index, max_rd_atomic, max_dest_rd_atomic, min_rnr_timer, port_num, timeout,
            retry_cnt, rnr_retry, rate_limit,
        }
        "struct ibv_sge" => Sge { addr, length, lkey }
        "struct ibv_recv_wr" => RecvWr { wr_id, next, sg_list, num_sge }
        "struct ibv_send_wr" => SendWr {
            wr_id, next, sg_list, num_sge, opcode, send_flags, imm_data, wr,
            wr.rdma.remote_addr, wr.rdma.rkey,
            wr.atomic.remote_addr, wr.atomic.compare_add, wr.atomic.swap, wr.atomic.rkey,
            wr.ud.ah, wr.ud.remote_qpn, wr.ud.remote_qkey,
            xrc_remote_srqn = "qp_type.xrc.remote_srqn", bind = "bind_mw",
            bind.mw = "bind_mw.mw", bind.rkey = "bind_mw.rkey", bind.mr = "bind_mw.bind_info.mr",
            bind.addr = "bind_mw.bind_info.addr", bind.length = "bind_mw.bind_info.length",
            bind.access = "bind_mw.bind_info.mw_access_flags",
        }
        "struct ibv_wc" => Wc {
            wr_id, status, opcode, vendor_err, byte_len, imm_data, qp_num, src_qp, wc_flags, pkey_index, slid, sl, dlid_path_bits,
        }
        "struct ibv_async_event" => AsyncEvent { element, event_type }
    }
    constants! { table;
        GID_TYPE_IB, GID_TYPE_ROCE_V1, GID_TYPE_ROCE_V2, ATOMIC_NONE, PORT_ACTIVE, LINK_LAYER_INFINIBAND, LINK_LAYER_ETHERNET,
        MTU_256, MTU_1024, MTU_4096, ACCESS_LOCAL_WRITE, ACCESS_REMOTE_WRITE, ACCESS_REMOTE_READ, ACCESS_REMOTE_ATOMIC, ACCESS_MW_BIND, MW_TYPE_2,
        QPT_RC, QPT_UD, QPS_INIT, QPS_RTR, QPS_RTS, QPS_SQE, QPS_ERR,
        QP_STATE, QP_ACCESS_FLAGS, QP_PKEY_INDEX, QP_PORT, QP_QKEY, QP_AV, QP_PATH_MTU, QP_TIMEOUT, QP_RETRY_CNT, QP_RNR_RETRY,
        QP_RQ_PSN, QP_MAX_QP_RD_ATOMIC, QP_MIN_RNR_TIMER, QP_SQ_PSN, QP_MAX_DEST_RD_ATOMIC, QP_CAP, QP_DEST_QPN,
        WR_RDMA_WRITE, WR_RDMA_WRITE_WITH_IMM, WR_SEND, WR_SEND_WITH_IMM, WR_RDMA_READ, WR_ATOMIC_CMP_AND_SWP,
        WR_ATOMIC_FETCH_AND_ADD, WR_BIND_MW, WR_SEND_WITH_INV, SEND_FENCE, SEND_SIGNALED, SEND_SOLICITED, SEND_INLINE,
        WC_SUCCESS, WC_LOC_LEN_ERR, WC_LOC_QP_OP_ERR, WC_LOC_PROT_ERR, WC_WR_FLUSH_ERR, WC_MW_BIND_ERR, WC_LOC_ACCESS_ERR, WC_REM_INV_REQ_ERR,
        WC_REM_ACCESS_ERR, WC_REM_OP_ERR, WC_RETRY_EXC_ERR, WC_RNR_RETRY_EXC_ERR, WC_FATAL_ERR,
        WC_OP_SEND = "IBV_WC_SEND", WC_OP_RDMA_WRITE = "IBV_WC_RDMA_WRITE", WC_OP_RDMA_READ = "IBV_WC_RDMA_READ",
        WC_OP_COMP_SWAP = "IBV_WC_COMP_SWAP", WC_OP_FETCH_ADD = "IBV_WC_FETCH_ADD", WC_OP_RECV = "IBV_WC_RECV", WC_OP_BIND_MW = "IBV_WC_BIND_MW",
        WC_OP_RECV_RDMA_WITH_IMM = "IBV_WC_RECV_RDMA_WITH_IMM", WC_GRH, WC_WITH_IMM, WC_WITH_INV,
        EVENT_CQ_ERR, EVENT_QP_FATAL, EVENT_QP_REQ_ERR, EVENT_QP_ACCESS_ERR, EVENT_DEVICE_FATAL, EVENT_PORT_ACTIVE,
        EVENT_PORT_ERR, EVENT_LID_CHANGE, EVENT_PKEY_CHANGE, EVENT_SRQ_ERR, EVENT_GID_CHANGE, EVENT_WQ_FATAL,
    }
    table
}

fn program(table: &LayoutTable) -> String {
    let mut text = "#include <infiniband/verbs.h>\n#include <stddef.h>\n#include <stdio.h>\nint \
        main(void) {\n"
        .to_owned();
    for (expression, _) in &table.0 {
        // `verbs_context` grows at its start, so compare distances to its end.
        let value = match expression.strip_prefix("offsetof(struct verbs_context") {
            Some(_) => format!("{expression} - offsetof(struct verbs_context, query_port)"),
            None if expression == "sizeof(struct verbs_context)" => {
                format!("{expression} - offsetof(struct verbs_context, query_port)")
            }
            None => expression.clone(),
        };
        let _ = writeln!(text, "    printf(\"%llu\\n\", (unsigned long long)({value}));");
    }
    text + "    return 0;\n}\n"
}

#[test]
fn structures__are_those_of_the_installed_header() {
    let table = table();
    let folder = std::env::temp_dir().join(format!("fastpath-verbs-layout-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let (source, binary) = (folder.join("layout.c"), folder.join("layout"));
    std::fs::write(&source, program(&table)).unwrap();
    let compiled =
        Command::new("cc").args(["-std=c11", "-o"]).args([&binary, &source]).output().unwrap();
    assert!(
        compiled.status.success(),
        "libibverbs-dev is missing (tests/setup installs it), or its header has changed:\n{}",
        String::from_utf8_lossy(&compiled.stderr)
    );
    let printed = Command::new(&binary).output().unwrap();
    let printed = String::from_utf8(printed.stdout).unwrap();
    let _ = std::fs::remove_dir_all(&folder);
    let theirs: Vec<u64> = printed.lines().map(|line| line.parse().unwrap()).collect();
    assert_eq!(theirs.len(), table.0.len());
    let wrong: Vec<String> = table
        .0
        .iter()
        .zip(theirs)
        .filter(|((_, ours), theirs)| ours != theirs)
        .map(|((what, ours), theirs)| format!("{what}: {ours} here, {theirs} there"))
        .collect();
    assert!(wrong.is_empty(), "{wrong:#?}");
}
