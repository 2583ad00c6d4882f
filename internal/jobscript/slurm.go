package jobscript

import "github.com/greylag/greylag/internal/jobscript/getopt"

// ignoredRows are options of sbatch that scripts have and whose absence changes
// nothing of what is run.
func ignoredRows(rows []option) []option {
	for _, name := range []string{
		"mail-type", "mail-user", "hint", "gpu-bind", "cpu-bind", "mem-bind", "accel-bind", "tres-bind",
		"profile", "acctg-freq", "time-min", "delay-boot", "gres-flags", "mcs-label", "extra", "priority",
	} {
		rows = append(rows, option{Option: getopt.Option{Long: name, Value: "VALUE"}})
	}
	rows = append(rows, option{Option: getopt.Option{Long: "propagate", Value: "VALUE", Absent: "ALL"}})
	rows = append(rows, option{Option: getopt.Option{Long: "distribution", Short: 'm', Value: "VALUE"}})
	rows = append(rows, option{Option: getopt.Option{Long: "wait-all-nodes", Value: "VALUE"}}) // nodes start together
	rows = append(rows, option{Option: getopt.Option{Long: "verbose", Short: 'v'}})
	for _, name := range []string{"spread-job", "use-min-nodes", "ignore-pbs"} {
		rows = append(rows, option{Option: getopt.Option{Long: name}})
	}
	rows = append(rows, option{Option: getopt.Option{Long: "oversubscribe", Short: 's', Value: "VALUE", Absent: "yes"}})
	return refusedRows(rows)
}

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
		{"tmp", 0, "SIZE", "", "/tmp space is not tracked: select nodes by a feature with --constraint"},
		{"clusters", 'M', "NAMES", "", "a command uses one cluster: set GREYLAG_CONFIG to the client.toml of another"},
		{"cluster-constraint", 0, "LIST", "", "a command uses one cluster: set GREYLAG_CONFIG to the client.toml of another"},
		{"nodefile", 'F', "FILE", "", "use --nodelist with the names, separated by commas"},
		{"prefer", 0, "FEATURES", "", "use --constraint for the required features, or omit it"},
		{"tres-per-task", 0, "LIST", "", "use --gpus-per-task and --cpus-per-task"},
		{"uid", 0, "USER", "", "submit it as that user"}, {"gid", 0, "GROUP", "", "submit it with that group: sg GROUP gsubmit"},
		{"batch", 0, "FEATURES", "", "the script starts on the first node: omit it"},
		{"bb", 0, "SPEC", "", "there are no burst buffers"}, {"bbf", 0, "FILE", "", "there are no burst buffers"},
		{"cpu-freq", 0, "FREQUENCY", "", "GPU and CPU clocks are not set for jobs: omit it"}, {"gpu-freq", 0, "FREQUENCY", "", "GPU and CPU clocks are not set for jobs: omit it"},
		{"reboot", 0, "", "", "nodes are not rebooted for a job: omit it"},
		{"segment", 0, "N", "", "use --switches or --connect for nodes in one domain"},
	} {
		rows = append(rows, option{Option: getopt.Option{Long: r.long, Short: r.short, Value: r.value, Absent: r.absent}, instead: r.instead})
	}
	return rows
}

// ignored is what is said of an option that is left out.
func ignored(name string) string {
	const what = "is an sbatch option that is ignored"
	if name == "mail-type" {
		return what + ": job mail is not supported; use gsubmit --wait"
	}
	return what
}
