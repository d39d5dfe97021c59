//! How a state is written. In JSON, what is empty of Torchlift's additions is left out; binary formats, which know no names,
//! always have it.

use serde::{Serialize, Serializer};

use super::{ActorRef, NotStarted, ProcId, ProcState, ProcStopReason, WorldId};
use crate::addr::ChannelAddr;
use crate::extent::Point;

#[derive(Serialize)]
#[serde(rename = "ProcState")]
enum Text<'a> {
    Created {
        proc_id: &'a ProcId,
        point: &'a Point,
        pid: u32,
    },
    Running {
        proc_id: &'a ProcId,
        mesh_agent: &'a ActorRef,
        addr: &'a ChannelAddr,
    },
    Stopped {
        proc_id: &'a ProcId,
        reason: &'a ProcStopReason,
    },
    Failed {
        world_id: &'a WorldId,
        description: &'a str,
        #[serde(skip_serializing_if = "Option::is_none")]
        not_started: &'a Option<NotStarted>,
    },
}

#[derive(Serialize)]
#[serde(rename = "ProcState")]
enum Binary<'a> {
    Created { proc_id: &'a ProcId, point: &'a Point, pid: u32 },
    Running { proc_id: &'a ProcId, mesh_agent: &'a ActorRef, addr: &'a ChannelAddr },
    Stopped { proc_id: &'a ProcId, reason: &'a ProcStopReason },
    Failed { world_id: &'a WorldId, description: &'a str, not_started: &'a Option<NotStarted> },
}

impl Serialize for ProcState {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        macro_rules! written_as {
            ($form:ident) => {
                match self {
                    Self::Created { proc_id, point, pid } => $form::Created { proc_id, point, pid: *pid },
                    Self::Running { proc_id, mesh_agent, addr } => $form::Running { proc_id, mesh_agent, addr },
                    Self::Stopped { proc_id, reason } => $form::Stopped { proc_id, reason },
                    Self::Failed { world_id, description, not_started } => {
                        $form::Failed { world_id, description, not_started }
                    }
                }
                .serialize(serializer)
            };
        }
        if serializer.is_human_readable() { written_as!(Text) } else { written_as!(Binary) }
    }
}
