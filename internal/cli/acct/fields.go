package acct

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"
	"time"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/wire"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

func count(n int64) string { return strconv.FormatInt(n, 10) }

// whoseFields say which job it is, whose, and where.
func whoseFields() []field {
	return []field{
		{"JobID", -12, func(r *row) string { return r.named(r.Ref) }},
		{"JobIDRaw", -12, func(r *row) string { return r.named(strconv.FormatUint(r.Id, 10)) }},
		{"JobName", 10, func(r *row) string { return cmp.Or(r.title, r.step, r.Name) }},
		{"User", 9, func(r *row) string { return r.User }},
		{"UID", 6, func(r *row) string { return count(int64(r.Uid)) }},
		{"Group", 9, (*row).group},
		{"GID", 6, func(r *row) string { return count(int64(r.Gid)) }},
		{"Account", 10, func(r *row) string { return cmp.Or(r.earlier.GetAccount(), r.Account) }},
		{"Cluster", 10, func(r *row) string { return r.in.cluster }},
		{"Partition", 10, (*row).partition},
		{"QOS", 10, func(r *row) string { return cmp.Or(r.earlier.GetQos(), r.Qos) }},
		{"Reservation", 20, func(r *row) string { return r.Reservation }},
		{"NodeList", 15, (*row).nodes},
		{"FailedNode", 10, func(r *row) string {
			for _, t := range r.tasks() {
				switch wire.Word(t.Cause) {
				case cluster.NodeFault.String(), cluster.GPUFault.String(), cluster.TaskLost.String():
					return t.Node
				}
			}
			return ""
		}},
	}
}

// whenFields are times and lengths of time.
func whenFields() []field {
	limit := func(r *row) time.Duration { return r.TimeLimit.AsDuration() }
	return []field{
		{"Submit", 19, func(r *row) string { return r.moment(timeOf(r.Submitted), "Unknown") }},
		{"Eligible", 19, func(r *row) string { return r.moment(r.eligible(), "Unknown") }},
		{"Start", 19, (*row).startText},
		{"End", 19, func(r *row) string { return r.moment(r.end, "Unknown") }},
		{"Elapsed", 10, func(r *row) string { return lengthText(r.elapsed) }},
		{"ElapsedRaw", 10, func(r *row) string { return count(int64(r.elapsed / time.Second)) }},
		{"Timelimit", 10, func(r *row) string {
			switch {
			case r.step != "":
				return ""
			case limit(r) == 0:
				return "UNLIMITED"
			}
			return lengthText(limit(r))
		}},
		{"TimelimitRaw", 12, func(r *row) string {
			switch {
			case r.step != "":
				return ""
			case limit(r) == 0:
				return "UNLIMITED"
			}
			return count(int64(limit(r) / time.Minute))
		}},
		{"Planned", 10, func(r *row) string { return lengthText(r.waited()) }},
		{"Reserved", 10, func(r *row) string { return lengthText(r.waited()) }},
		{"PlannedCPU", 10, func(r *row) string {
			return lengthText(r.waited() * time.Duration(r.request().Requested(cluster.ResourceCPU)))
		}},
		{"PlannedCPURAW", 13, func(r *row) string {
			return count(int64(r.waited()/time.Second) * r.request().Requested(cluster.ResourceCPU))
		}},
	}
}

// howMuchFields are what was asked for and what was given.
func howMuchFields() []field {
	asked := func(name string, width int, resource string) field {
		return field{name, width, func(r *row) string { return count(r.request().Requested(resource)) }}
	}
	return []field{
		{"AllocCPUS", 10, func(r *row) string { return count(r.cpus()) }},
		{"NCPUS", 10, func(r *row) string { return count(r.cpus()) }},
		{"AllocGRES", 12, (*row).gres},
		{"AllocGPUS", 9, func(r *row) string { return count(r.has(cluster.ResourceGPU)) }},
		{"AllocNodes", 10, func(r *row) string { return count(r.has(cluster.ResourceNode)) }},
		{"AllocTRES", 10, func(r *row) string { return tresText(r.tres, r.in.unit) }},
		{"NNodes", 8, func(r *row) string { return count(r.nodeCount()) }},
		{"NTasks", 8, func(r *row) string { return count(cmp.Or(r.taskCount, r.nodeCount()*int64(r.request().TasksPerNode))) }},
		asked("ReqCPUS", 8, cluster.ResourceCPU),
		asked("ReqGPUS", 8, cluster.ResourceGPU),
		asked("ReqNodes", 8, cluster.ResourceNode),
		{"ReqMem", 10, func(r *row) string {
			return sizeText(cluster.Bytes(r.request().Requested(cluster.ResourceMem))*cluster.MiB, r.in.unit)
		}},
		{"ReqTRES", 10, func(r *row) string { return tresText(r.asked(), r.in.unit) }},
		{"Licenses", 12, func(r *row) string {
			var words []string
			for _, l := range r.Request.GetLicences() {
				words = append(words, fmt.Sprintf("%s:%d", l.Name, l.Count))
			}
			return strings.Join(words, ",")
		}},
		{"Charged", 12, func(r *row) string {
			if r.earlier != nil || r.past.Charged == nil { // what is not known is not 0
				return ""
			}
			return accounting.Credits(r.past.GetCharged()).String()
		}},
	}
}

// measuredFields are what nodes measured, by task: one on each node.
func measuredFields() []field {
	average := func(r *row, sum int64) int64 { return sum / int64(max(len(r.tasks()), 1)) }
	return []field{
		{"MaxRSS", 10, func(r *row) string {
			if t, _ := r.extreme(byMemory); t != nil {
				return r.resident(t.MemoryPeak)
			}
			return ""
		}},
		{"MaxRSSNode", 10, func(r *row) string { t, _ := r.extreme(byMemory); return t.GetNode() }},
		{"MaxRSSTask", 10, func(r *row) string { return r.rankOf(r.extreme(byMemory)) }},
		{"AveRSS", 10, func(r *row) string {
			sum := int64(0)
			for _, t := range r.tasks() {
				sum += t.MemoryPeak
			}
			return r.resident(average(r, sum))
		}},
		{"TotalCPU", 10, func(r *row) string { return cpuText(r.cpuTime()) }},
		{"UserCPU", 10, func(r *row) string { return r.partText(r.userTime()) }},
		{"SystemCPU", 10, func(r *row) string { return r.partText(r.cpuTime() - r.userTime()) }},
		{"AveCPU", 10, func(r *row) string { return lengthText(time.Duration(average(r, int64(r.cpuTime())))) }},
		{"MinCPU", 10, func(r *row) string { t, _ := r.extreme(byIdleness); return lengthText(t.GetCpuTime().AsDuration()) }},
		{"MinCPUNode", 10, func(r *row) string { t, _ := r.extreme(byIdleness); return t.GetNode() }},
		{"MinCPUTask", 10, func(r *row) string { return r.rankOf(r.extreme(byIdleness)) }},
		{"CPUTime", 10, func(r *row) string { return lengthText(time.Duration(r.cpuHeld()) * time.Millisecond) }},
		{"CPUTimeRAW", 10, func(r *row) string { return count(r.cpuHeld() / 1000) }},
	}
}

// howFields are how it was to run and how it ended.
func howFields() []field {
	return []field{
		{"State", 10, (*row).state},
		{"ExitCode", 8, (*row).exit},
		{"DerivedExitCode", 15, (*row).worstExit},
		{"Reason", 22, func(r *row) string {
			if r.Reason == greylagv1.Reason_REASON_UNSPECIFIED || r.earlier != nil {
				return "None"
			}
			return wire.Word(r.Reason)
		}},
		{"Restarts", 8, func(r *row) string { return count(int64(r.Restarts)) }},
		{"Attempt", 8, func(r *row) string {
			if r.earlier != nil {
				return count(int64(r.earlier.Attempt))
			}
			return count(int64(r.Attempt))
		}},
		{"Constraints", 19, func(r *row) string { return cluster.FormatFeatures(r.Request.GetFeatures()) }},
		{"Container", 19, func(r *row) string { return r.Image }},
		{"AdminComment", 19, func(r *row) string { return r.AdminComment }},
		{"WorkDir", 20, func(r *row) string { return r.WorkDir }},
		{"StdOut", 20, func(r *row) string { return r.Output }},
		{"StdErr", 20, func(r *row) string {
			if r.Error == "" {
				return r.Output
			}
			return r.Error
		}},
	}
}
