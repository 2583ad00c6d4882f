package jobscript

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/greylag/greylag/internal/jobscript/getopt"
	"github.com/greylag/greylag/pkg/accounting"
	"github.com/greylag/greylag/pkg/cluster"
)

// option is one row of the one table of options.
type option struct {
	getopt.Option
	family    family
	onlyTyped bool // makes sense on the command line only
	// set stores the value. nil: an option of sbatch without effect here; the user of gsubmit
	// gets a warning.
	set func(o *Options, value string, now time.Time) error
	// instead is what to do where an option of sbatch cannot be left out silently;
	// "" for all others.
	instead string
	// harmless is why an option of sbatch without effect changes nothing: sbatch accepts it without
	// a warning. "" for all others.
	harmless string
	missing  string // else what its user does without
}

// Table is the options of gsubmit, for parsing, help and completion.
func Table() []getopt.Option { return newTable(false).plain }

// table is all options: rows, and what of each row the parsing of words needs.
type table struct {
	rows   []option
	plain  []getopt.Option
	sbatch bool // of the program sbatch, not of gsubmit
}

// mostRows is how many rows there may be before the table is moved while it is made.
const mostRows = 152

func newTable(sbatch bool) *table {
	rows := make([]option, 0, mostRows)
	for _, group := range []struct {
		name string
		add  func([]option) []option
	}{
		{"The job", identityRows}, {"Resources", resourceRows}, {"Nodes", nodeRows}, {"Cloud nodes", burstRows},
		{"When", timeRows}, {"What runs, and its files", runRows}, {"After a failure", restartRows}, {"The command", commandRows},
	} {
		begin := len(rows)
		rows = group.add(rows)
		for i := range rows[begin:] {
			rows[begin+i].Group = group.name
		}
	}
	rows = ignoredRows(rows)
	if sbatch {
		rows = sbatchRows(rows)
	}
	return tableOf(rows, sbatch)
}

func tableOf(rows []option, sbatch bool) *table {
	t := &table{rows: rows, plain: make([]getopt.Option, len(rows)), sbatch: sbatch}
	for i := range rows {
		t.plain[i] = rows[i].Option
	}
	return t
}

// row is the row of an option; nil without an option of that name.
func (t *table) row(long string) *option {
	for i := range t.rows {
		if t.rows[i].Long == long {
			return &t.rows[i]
		}
	}
	return nil
}

// text makes a setter for a name or a path.
func text(field func(*Options) *string) func(*Options, string, time.Time) error {
	return func(o *Options, v string, _ time.Time) error {
		*field(o) = v
		return checkText(v)
	}
}

// count makes a setter for a number from least on.
func count(least int32, field func(*Options) *int32) func(*Options, string, time.Time) error {
	return func(o *Options, v string, _ time.Time) (err error) {
		*field(o), err = parseCount(v, least)
		return err
	}
}

// turn makes a setter for an option without a value.
func turn(set func(*Options)) func(*Options, string, time.Time) error {
	return func(o *Options, _ string, _ time.Time) error {
		set(o)
		return nil
	}
}

// size makes a setter for an amount of memory, in MiB unless it says so, as in sbatch.
func size(field func(*Options) *cluster.Bytes) func(*Options, string, time.Time) error {
	return func(o *Options, v string, _ time.Time) error {
		n, err := cluster.ParseBytes(v, cluster.MiB)
		*field(o) = n
		o.memZero = err == nil && n == 0
		return err
	}
}

// one wants a single name where sbatch takes several. An empty one comes from a variable
// that is not set: another account would pay, or the job would run elsewhere.
func one(what string, field func(*Options) *string) func(*Options, string, time.Time) error {
	return func(o *Options, v string, _ time.Time) error {
		if v == "" {
			return advise("the "+what+" has no name", "is the shell variable set? omit the option to do without it")
		}
		if strings.Contains(v, ",") {
			return advise("only one "+what+" can be named", "only one is allowed")
		}
		*field(o) = v
		return checkText(v)
	}
}

func identityRows(all []option) []option {
	return append(all, []option{
		{Option: getopt.Option{Long: "job-name", Short: 'J', Aliases: []string{"name"}, Value: "NAME", Help: "name of the job [the script's]"},
			set: text(func(o *Options) *string { return &o.Name })},
		{Option: getopt.Option{Long: "account", Short: 'A', Value: "ACCOUNT", Help: "account to charge"},
			set: one("account", func(o *Options) *string { return &o.Account })},
		{Option: getopt.Option{Long: "partition", Short: 'p', Value: "PARTITION", Help: "partition, or several separated by commas: the one with the earliest start is used [default partition]"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Partition, o.Others, err = parsePartitions(v)
				return err
			}},
		{Option: getopt.Option{Long: "reservation", Value: "NAME", Help: "run on the nodes that an administrator reserved under this name"},
			set: one("reservation", func(o *Options) *string { return &o.Reservation })},
		{Option: getopt.Option{Long: "qos", Short: 'q', Value: "QOS", Help: "priority class"},
			set: one("QOS", func(o *Options) *string { return &o.QOS })},
		{Option: getopt.Option{Long: "comment", Value: "TEXT", Help: "comment stored with the job"},
			set: text(func(o *Options) *string { return &o.Comment })},
		{Option: getopt.Option{Long: "wckey", Value: "KEY", Help: "workload characterization key, for the site's statistics"},
			set: text(func(o *Options) *string { return &o.WCKey })},
		{Option: getopt.Option{Long: "mail-type", Value: "EVENTS", Help: "notify a user of BEGIN, END, FAIL, REQUEUE, INVALID_DEPEND, WARNING, TIME_LIMIT, TIME_LIMIT_90, _80 or _50, separated by commas; ALL, NONE; ARRAY_TASKS: of each element"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				if o.MailTypes, err = cluster.ParseMailTypes(v); err != nil {
					return advise(err.Error(), "write BEGIN, END, FAIL, REQUEUE, INVALID_DEPEND, WARNING, TIME_LIMIT, TIME_LIMIT_90, TIME_LIMIT_80, TIME_LIMIT_50, ARRAY_TASKS, ALL or NONE, separated by commas")
				}
				return nil
			}},
		{Option: getopt.Option{Long: "mail-user", Value: "ADDRESS", Help: "whom to notify, an address or a user [you]"},
			set: one("recipient", func(o *Options) *string { return &o.MailUser })},
		{Option: getopt.Option{Long: "secret", Value: "NAMES", Help: "provide these secrets (gctl secret) as files in $GREYLAG_SECRETS_DIR; separated by commas, may be repeated"},
			set: addSecrets},
		{Option: getopt.Option{Long: "array", Short: 'a', Value: "INDICES", Help: "one element for each index: 0-15, 0,6,16-32, 0-15:4; %4 at the end: at most four at once"},
			set: func(o *Options, v string, _ time.Time) error { o.Array = v; return checkArray(v) }},
		{Option: getopt.Option{Long: "dependency", Short: 'd', Value: "CONDITIONS", Help: "wait for other jobs: afterok:123:124, afterany:, afternotok:, aftercorr:, after:, after:123+10 (minutes later), singleton; joined by commas (all must hold) or by ? (one is enough)"},
			set: func(o *Options, v string, _ time.Time) (err error) { o.Depends, err = ParseDepends(v); return err }},
		{Option: getopt.Option{Long: "hold", Short: 'H', Help: "keep it back until gctl release"},
			set: turn(func(o *Options) { o.Hold = true })},
		{Option: getopt.Option{Long: "requeue", Help: "requeue after a node failure [yes]"},
			set: turn(func(o *Options) { o.NoRequeue = false })},
		{Option: getopt.Option{Long: "no-requeue", Help: "do not requeue"},
			set: turn(func(o *Options) { o.NoRequeue = true })},
		{Option: getopt.Option{Long: "nice", Value: "N", Absent: "100", Help: "lower its priority by N [100]"},
			set: func(o *Options, v string, _ time.Time) (err error) { o.Nice, err = parseCount(v, -1<<31); return err }},
	}...)
}

// setGres sets the GPUs of each node and its generic resources. It replaces an earlier value of the same
// option; with GPUs it also replaces other options for GPUs, of weaker places.
func setGres(o *Options, v string, _ time.Time) error {
	g, err := parseGRES(v)
	o.Request.Gres = g.others
	switch {
	case g.hasGPUs:
		o.Request.GPUsPerNode, o.gresGPUs = g.gpus, true
		if g.gpuTypes != nil {
			o.Request.GPUTypes = g.gpuTypes
		}
	case o.gresGPUs:
		o.Request.GPUsPerNode, o.Request.GPUTypes, o.gresGPUs = 0, nil, false
	}
	return err
}

// setTmp sets the scratch space of each node, in whole MiB.
func setTmp(o *Options, v string, _ time.Time) error {
	size, err := cluster.ParseBytes(v, cluster.MiB)
	if err == nil && size > cluster.MaxGresCount*cluster.MiB {
		err = advise(fmt.Sprintf("%v exceeds the maximum", size), fmt.Sprintf("write at most %v", cluster.MaxGresCount*cluster.MiB))
	}
	if err != nil {
		return err
	}
	o.tmp = int64((size + cluster.MiB - 1) / cluster.MiB)
	return nil
}

// addSecrets adds names of secrets; one that was named before counts once.
func addSecrets(o *Options, v string, _ time.Time) error {
	for name := range strings.SplitSeq(v, ",") {
		if !cluster.ValidObjectName(name) {
			return advise(fmt.Sprintf("%q cannot name a secret", name), "gctl secret list shows the names")
		}
		if !slices.Contains(o.Secrets, name) {
			o.Secrets = append(o.Secrets, name)
		}
	}
	return nil
}

func resourceRows(all []option) []option {
	gpus := func(per func(*Options) *int32, parse func(string) ([]string, int32, error)) func(*Options, string, time.Time) error {
		return func(o *Options, v string, _ time.Time) (err error) {
			types, n, err := parse(v)
			*per(o) = n
			if types != nil {
				o.Request.GPUTypes = types
			}
			return err
		}
	}
	perNode := func(o *Options) *int32 { return &o.Request.GPUsPerNode }
	return append(all, []option{
		{Option: getopt.Option{Long: "gpus", Short: 'G', Value: "[TYPE:]N", Help: "total GPUs, on any number of nodes; several types: h100|a100:8"},
			family: gpuFamily, set: gpus(func(o *Options) *int32 { return &o.Request.GPUs }, parseGPUs)},
		{Option: getopt.Option{Long: "gpus-per-node", Value: "[TYPE:]N", Help: "GPUs on each node"},
			family: gpuFamily, set: gpus(perNode, parseGPUs)},
		{Option: getopt.Option{Long: "gpus-per-task", Value: "[TYPE:]N", Help: "GPUs for each task"},
			family: gpuFamily, set: gpus(func(o *Options) *int32 { return &o.gpusPerTask }, parseGPUs)},
		{Option: getopt.Option{Long: "gpu-share", Value: "N[:mps]", Help: "share the GPU with up to N-1 other jobs of yours in the same account (N: 2, 4 or 8), time-sliced, or with NVIDIA's MPS"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Request.Share, err = parseGPUShare(v)
				return err
			}},
		{Option: getopt.Option{Long: "gres", Value: "NAME[:TYPE][:N],...", Help: "as in sbatch: GPUs (gpu) and generic resources of each node [1 of each]"},
			set: setGres},
		{Option: getopt.Option{Long: "gpu-mem", Value: "SIZE", Help: "minimum memory per GPU device: 80G; with --gpus mig:1 the smallest MIG profile that has it, or else whole GPU"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Request.GPUMemory, err = cluster.ParseBytes(v, cluster.MiB)
				return err
			}},
		{Option: getopt.Option{Long: "max-price", Value: "CREDITS", Help: "maximum price per GPU hour: 2.5"},
			set: func(o *Options, v string, _ time.Time) error {
				c, err := accounting.ParseCredits(v)
				if err == nil && c <= 0 {
					err = advise(fmt.Sprintf("%q is not above 0", v), "omit it to accept any price")
				}
				o.Request.MaxPrice = int64(c)
				return err
			}},
		{Option: getopt.Option{Long: "cpus-per-task", Short: 'c', Value: "N", Help: "CPUs for each task [1]"},
			set: count(1, func(o *Options) *int32 { return &o.Request.CPUsPerTask })},
		{Option: getopt.Option{Long: "cpus-per-gpu", Value: "N", Help: "CPUs for each GPU"},
			set: count(1, func(o *Options) *int32 { return &o.cpusPerGPU })},
		{Option: getopt.Option{Long: "mem", Value: "SIZE", Help: "memory on each node: 500M, 64G; MiB without a suffix"},
			family: memoryFamily, set: size(func(o *Options) *cluster.Bytes { return &o.Request.MemPerNode })},
		{Option: getopt.Option{Long: "mem-per-cpu", Value: "SIZE", Help: "memory for each CPU"},
			family: memoryFamily, set: size(func(o *Options) *cluster.Bytes { return &o.Request.MemPerCPU })},
		{Option: getopt.Option{Long: "mem-per-gpu", Value: "SIZE", Help: "memory for each GPU"},
			family: memoryFamily, set: size(func(o *Options) *cluster.Bytes { return &o.Request.MemPerGPU })},
		{Option: getopt.Option{Long: "tmp", Value: "SIZE", Help: "scratch space on each node, in $TMPDIR: 500M, 100G; MiB without a suffix"},
			set: setTmp},
		{Option: getopt.Option{Long: "ntasks", Short: 'n', Value: "N", Help: "total number of tasks, the same on each node"},
			set: count(1, func(o *Options) *int32 { return &o.tasks })},
		{Option: getopt.Option{Long: "ntasks-per-node", Aliases: []string{"tasks-per-node"}, Value: "N", Help: "tasks on each node [1]"},
			set: count(1, func(o *Options) *int32 { return &o.Request.TasksPerNode })},
		{Option: getopt.Option{Long: "ntasks-per-gpu", Value: "N", Help: "tasks for each GPU"},
			set: count(1, func(o *Options) *int32 { return &o.tasksPerGPU })},
		{Option: getopt.Option{Long: "licenses", Short: 'L', Aliases: []string{"licences"}, Value: "NAME[:N],...", Help: "licences held while it runs [1 of each]"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Request.Licences, err = parseLicences(v)
				return err
			}},
	}...)
}

func nodeRows(all []option) []option {
	return append(all, []option{
		{Option: getopt.Option{Long: "nodes", Short: 'N', Value: "N[-M]", Help: "number of nodes; N-M: at least N, and up to M that are free when it starts [1]"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Request.Nodes, o.Request.MaxNodes, err = parseNodes(v)
				return err
			}},
		{Option: getopt.Option{Long: "elastic", Value: "step:N", Absent: "step:1", Help: "with a range for --nodes: start with the minimum or more, and get further idle nodes while the job runs, in multiples of N [1]; they are reclaimed for other jobs"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Elastic.Step, err = parseStep(v)
				return err
			}},
		{Option: getopt.Option{Long: "resize-signal", Value: "[B:]SIG", Help: "with --elastic: send SIG to the tasks when the nodes of the job change; B: batch shells only"},
			set: func(o *Options, v string, _ time.Time) error { return setResizeSignal(o, v) }},
		{Option: getopt.Option{Long: "constraint", Short: 'C', Value: "FEATURES", Help: "only nodes with these features: a&b (both), a|b (one of them), [a|b] (one, the same on all nodes)"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Request.Features, err = ParseFeatures(v)
				return err
			}},
		{Option: getopt.Option{Long: "nodelist", Short: 'w', Value: "NODES", Help: "all of these nodes, and others if --nodes is larger: gpu[001-004],gpu7; with a smaller --nodes, only some of these"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Request.NodeList, err = ParseHosts(v)
				return err
			}},
		{Option: getopt.Option{Long: "region", Value: "REGIONS", Help: "only nodes in these regions, separated by commas"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Request.Regions, err = parseRegions(v)
				return err
			}},
		{Option: getopt.Option{Long: "exclude", Short: 'x', Value: "NODES", Help: "none of these nodes"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Request.Exclude, err = ParseHosts(v)
				return err
			}},
		{Option: getopt.Option{Long: "connect", Value: "HOW[@TIME]", Help: "locality of its GPUs: nvlink (one domain), nvlink-node (one domain per node), leaf (one leaf switch), any; @TIME: start anywhere after that wait"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Request.Connect, o.connectWait, err = parseConnect(v)
				return err
			}},
		{Option: getopt.Option{Long: "switches", Value: "N[@TIME]", Help: "at most N leaf switches; after TIME any number; @unlimited: always [max_switch_wait of the policy]"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Request.Switches, o.switchWait, err = parseSwitches(v)
				return err
			}},
		{Option: getopt.Option{Long: "exclusive", Value: "yes", Absent: "yes", Help: "allocate whole nodes, with all GPUs and CPUs"},
			set: func(o *Options, v string, _ time.Time) error {
				o.Request.Exclusive = true
				if v != "yes" {
					return advise("sharing by "+v+" is not supported", "write --exclusive alone")
				}
				return nil
			}},
		{Option: getopt.Option{Long: "every-node", Help: "start the script on every node, not only on the first"},
			set: turn(func(o *Options) { o.EveryNode = true })},
	}...)
}

func timeRows(all []option) []option {
	return append(all, []option{
		{Option: getopt.Option{Long: "time", Short: 't', Value: "TIME", Help: "time limit: minutes, h:m:s, d-h:m:s [the partition's]"},
			set: func(o *Options, v string, _ time.Time) error {
				d, err := cluster.ParseLimit(v)
				o.TimeLimit = &d
				return err
			}},
		{Option: getopt.Option{Long: "begin", Short: 'b', Value: "TIME", Help: "not before: 16:00, now+1hour, tomorrow, 2026-11-21T16:00"},
			set: func(o *Options, v string, now time.Time) (err error) { o.Begin, err = ParseMoment(v, now); return err }},
		{Option: getopt.Option{Long: "deadline", Value: "TIME", Help: "cancel it if it cannot finish by then"},
			set: func(o *Options, v string, now time.Time) (err error) {
				o.Deadline, err = ParseMoment(v, now)
				if err == nil && !o.Deadline.After(now) {
					return advise("the deadline has passed", "write a time in the future, such as now+4hours")
				}
				return err
			}},
		{Option: getopt.Option{Long: "signal", Value: "[B:]SIG[@SEC]", Help: "send SIG this many seconds before the time limit [60]; B: only to the batch shell; R: is ignored"},
			set: func(o *Options, v string, _ time.Time) (err error) {
				o.Signal, err = parseWarn(v, "RB", warnDefault)
				return err
			}},
	}...)
}
