package jobscript

import (
	"cmp"

	"github.com/greylag/greylag/internal/jobscript/getopt"
)

// ignoredRows are options of sbatch that scripts have and whose absence changes
// nothing of what is run.
func ignoredRows(rows []option) []option {
	const pinned = "tasks use the CPUs, memory and GPUs of their job without binding"
	for _, r := range [...]struct {
		long          string
		short         byte
		value, absent string
		harmless      string // why it changes nothing
		missing       string // else what the user does without
	}{
		{"hint", 0, "VALUE", "", pinned, ""}, {"gpu-bind", 0, "VALUE", "", pinned, ""},
		{"cpu-bind", 0, "VALUE", "", pinned, ""}, {"mem-bind", 0, "VALUE", "", pinned, ""}, {"accel-bind", 0, "VALUE", "", pinned, ""}, {"tres-bind", 0, "VALUE", "", pinned, ""},
		{"profile", 0, "VALUE", "", "", "no profile is recorded"}, {"acctg-freq", 0, "VALUE", "", "usage is measured always", ""}, {"time-min", 0, "VALUE", "", "the time limit is never shortened", ""},
		{"delay-boot", 0, "VALUE", "", "nodes are not booted for a job", ""}, {"gres-flags", 0, "VALUE", "", pinned, ""}, {"mcs-label", 0, "VALUE", "", "", "jobs have no security labels"},
		{"extra", 0, "VALUE", "", "", "nodes are not selected by it"}, {"priority", 0, "VALUE", "", "", "priorities are computed: an operator changes the nice value instead"},
		{"propagate", 0, "VALUE", "ALL", "the limits of the login shell never reach a job", ""}, {"distribution", 'm', "VALUE", "", "every node gets the same number of tasks, in the order of ranks", ""},
		{"wait-all-nodes", 0, "VALUE", "", "the nodes of a job start together", ""}, {"verbose", 'v', "", "", "it only prints more", ""},
		{"spread-job", 0, "", "", "every node gets the same number of tasks", ""}, {"use-min-nodes", 0, "", "", "the number of nodes is fixed", ""},
		{"ignore-pbs", 0, "", "", "#PBS lines are never read", ""}, {"oversubscribe", 's', "VALUE", "yes", "jobs share nodes, and never CPUs or GPUs", ""},
		{"oom-kill-step", 0, "VALUE", "1", "a job that runs out of memory ends", ""}, {"stepmgr", 0, "", "", "steps need no manager", ""},
	} {
		rows = append(rows, option{Option: getopt.Option{Long: r.long, Short: r.short, Value: r.value, Absent: r.absent}, harmless: r.harmless, missing: r.missing})
	}
	return refusedRows(rows)
}

// NoX11 is the advice for --x11.
const NoX11 = "X11 is not forwarded: run a VNC server in the job, and forward its port with gctl forward"

// refusedRows are options of sbatch without which something else would run than the
// script asks for, each with what to do instead.
func refusedRows(rows []option) []option {
	const cores = "nodes only count CPUs: request them with --cpus-per-task and --ntasks-per-node"
	const afterLoss = "omit it: a job that loses a node is requeued and restarts from the beginning, unless --no-requeue is given"
	for _, r := range [...]struct {
		long          string
		short         byte
		value, absent string
		instead       string
	}{
		{"container", 0, "PATH", "", "use --image: an image of a registry, or oci:/FOLDER for an OCI layout"},
		{"container-id", 0, "ID", "", "use --image"},
		{"export-file", 0, "FILE", "", "use --env NAME=VALUE or --export NAME=VALUE, or source the file in the script: set -a; . FILE"},
		{"get-user-env", 0, "VALUE", "yes", "begin the script with #!/bin/bash -l, which reads your profile"},
		{"no-kill", 'k', "WHAT", "yes", afterLoss},
		{"overcommit", 'O', "", "", "request the CPUs that the tasks share: --ntasks-per-node=1 and --cpus-per-task"},
		{"contiguous", 0, "", "", "use --connect=leaf or --switches=1 for nodes in one domain"},
		{"kill-on-invalid-dep", 0, "yes|no", "", "omit it: a dependency that can never be satisfied is refused, and gqueue shows one that fails later as DependencyNeverSatisfied"},
		{"mincpus", 0, "N", "", cores}, {"threads-per-core", 0, "N", "", cores}, {"cores-per-socket", 0, "N", "", cores},
		{"sockets-per-node", 0, "N", "", cores}, {"ntasks-per-core", 0, "N", "", cores}, {"ntasks-per-socket", 0, "N", "", cores},
		{"extra-node-info", 'B', "N", "", cores}, {"core-spec", 'S', "N", "", cores}, {"thread-spec", 0, "N", "", cores},
		{"gpus-per-socket", 0, "N", "", "use --gpus-per-node, with --connect=nvlink-node for GPUs connected by NVLink"},
		{"clusters", 'M', "NAMES", "", "a command uses one cluster: set GREYLAG_CONFIG to the client.toml of another"},
		{"cluster-constraint", 0, "LIST", "", "a command uses one cluster: set GREYLAG_CONFIG to the client.toml of another"},
		{"nodefile", 'F', "FILE", "", "use --nodelist with the names, separated by commas"},
		{"prefer", 0, "FEATURES", "", "use --constraint for the required features, or omit it"},
		{"tres-per-task", 0, "LIST", "", "use --gpus-per-task and --cpus-per-task"},
		{"x11", 0, "WHERE", "all", NoX11},
		{"uid", 0, "USER", "", "submit it as that user"}, {"gid", 0, "GROUP", "", "submit it with that group: sg GROUP gsubmit"},
		{"batch", 0, "FEATURES", "", "the script starts on the first node: omit it"},
		{"bb", 0, "SPEC", "", "there are no burst buffers; --stage-in and --stage-out copy files"}, {"bbf", 0, "FILE", "", "there are no burst buffers; --stage-in and --stage-out copy files"},
		{"cpu-freq", 0, "FREQUENCY", "", "GPU and CPU clocks are not set for jobs: omit it"}, {"gpu-freq", 0, "FREQUENCY", "", "GPU and CPU clocks are not set for jobs: omit it"},
		{"reboot", 0, "", "", "nodes are not rebooted for a job: omit it"},
		{"segment", 0, "N", "", "use --switches or --connect for nodes in one domain"},
		{"network", 0, "TYPE", "", "networks are not configured for jobs: omit it"}, {"resv-ports", 0, "N", "yes", "ports are not reserved: let programs choose free ports"},
	} {
		rows = append(rows, option{Option: getopt.Option{Long: r.long, Short: r.short, Value: r.value, Absent: r.absent}, instead: r.instead})
	}
	return rows
}

// ignored is what is said of an option that is left out.
func (r *resolver) ignored(row *option) string {
	what := "is an sbatch option that is ignored"
	if r.sbatch {
		what = "has no effect"
	}
	return what + ": " + cmp.Or(row.missing, row.harmless)
}
