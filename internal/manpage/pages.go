package manpage

// Source says where a page comes from, and holds what is not in a help text: files, variables and
// references.
type Source struct {
	Name    string
	Section int
	Summary string // "" is the heading of the reference
	About   string // a paragraph before the help's; "" for none
	// Help is whether the program is asked for its help.
	Help bool
	// Commands is whether each subcommand has a page of its own.
	Commands  bool
	Reference string // a page of docs/config, without .md; "" for none
	Files     [][2]string
	Variables [][2]string
	See       []string
}

// The files and variables of all commands.
var (
	clientFiles = [][2]string{
		{"/etc/greylag/client.toml", "configuration of the commands, see greylag-client.toml(5)"},
		{"/run/greylag/auth.sock", "the socket of gauthd(8), which authenticates users"},
	}
	clientVariables = [][2]string{
		{"GREYLAG_CONFIG", "path of the client configuration instead of /etc/greylag/client.toml"},
		{"GREYLAG_SOCKET", "set inside a job: the socket through which commands reach the cluster"},
		{"NO_COLOR", "if set, output is not coloured"},
		{"COLUMNS", "width of tables, instead of the width of the terminal"},
	}
)

// daemonFiles returns the files of a daemon.
func daemonFiles(name, dataDir, data string) [][2]string {
	return [][2]string{
		{"/etc/greylag/" + name + ".toml", "configuration, see " + name + ".toml(5)"},
		{"/etc/greylag/" + name + ".d/*.toml", "further configuration, read after it in order of the file names"},
		{dataDir, data},
	}
}

// Sources returns the pages of all programs and files.
func Sources() []Source {
	return []Source{
		{
			Name: "gsubmit", Section: 1, Summary: "submit a batch script", Help: true, Files: clientFiles,
			Variables: append([][2]string{
				{"GSUB_*", "options: GSUB_GPUS_PER_NODE is --gpus-per-node; SBATCH_* variables are read too, and GSUB_* override them"},
			}, clientVariables...),
			See: []string{"gqueue(1)", "gcancel(1)", "gctl(1)", "greylag-client.toml(5)"},
		}, {
			Name: "gqueue", Section: 1, Summary: "list pending and running jobs", Help: true, Files: clientFiles,
			Variables: append([][2]string{
				{"GQUEUE_FORMAT", "columns, as for -o"}, {"SQUEUE_FORMAT", "the same, if GQUEUE_FORMAT is not set"},
			}, clientVariables...),
			See: []string{"gsubmit(1)", "gcancel(1)", "gctl(1)", "gctl-why(1)", "greylag-client.toml(5)"},
		}, {
			Name: "gcancel", Section: 1, Summary: "cancel or signal jobs", Help: true, Files: clientFiles, Variables: clientVariables,
			See: []string{"gsubmit(1)", "gqueue(1)", "grun(1)", "gctl(1)", "greylag-client.toml(5)"},
		}, {
			Name: "grun", Section: 1, Summary: "run programs on the nodes of a job", Help: true, Files: clientFiles[:1],
			Variables: append([][2]string{
				{"SLURM_NTASKS, SLURM_NTASKS_PER_NODE, SLURM_NNODES", "sizes of the job, used if no option gives them"},
				{"SRUN_CPUS_PER_TASK", "the same as --cpus-per-task"},
				{"SLURM_MPI_TYPE", "none is the same as --mpi=none"},
			}, clientVariables...),
			See: []string{"gsubmit(1)", "gcancel(1)", "gctl(1)", "gstepd(8)"},
		}, {
			Name: "gctl", Section: 1, Summary: "inspect and manage a cluster", Help: true, Commands: true, Files: clientFiles, Variables: clientVariables,
			See: []string{"gsubmit(1)", "gqueue(1)", "gcancel(1)", "gsim(1)", "greylag-policy.toml(5)", "greylag-accounts.toml(5)", "greylag-topology(5)", "greylag-client.toml(5)", "gctld(8)"},
		}, {
			Name: "gsim", Section: 1, Summary: "run the scheduler in virtual time", Help: true, Commands: true, Files: clientFiles[:1], Variables: clientVariables[:1],
			See: []string{"gctl(1)", "greylag-policy.toml(5)", "greylag-machine.toml(5)", "greylag-topology(5)"},
		}, {
			Name: "gctld", Section: 8, Summary: "controller daemon of a Greylag cluster", Help: true,
			About: "A controller keeps the replicated state of the cluster, answers the API on one TCP port, and decides when and where jobs run. A cluster has one, three or five.",
			Files: daemonFiles("gctld", "/var/lib/greylag/controller", "log, snapshots, archive and certificates"),
			See:   []string{"gctl(1)", "gctl-init(1)", "gctl-cluster(1)", "gctld.toml(5)", "greylag-policy.toml(5)", "gnoded(8)", "gauthd(8)"},
		}, {
			Name: "gnoded", Section: 8, Summary: "node daemon of a Greylag cluster", Help: true,
			About: "It runs as root on every compute node, finds the node's GPUs, and runs the tasks that the controllers place there. It listens on no port, unless metrics.listen is set.",
			Files: daemonFiles("gnoded", "/var/lib/greylag/node", "certificate, tasks and their results"),
			See:   []string{"gctl(1)", "gctl-join(1)", "gctl-drain(1)", "gnoded.toml(5)", "gctld(8)", "gshim(8)"},
		}, {
			Name: "gauthd", Section: 8, Summary: "authentication daemon of a login node", Help: true,
			About: "It reads the identity of a command's user from the kernel, and signs a token that is valid for 60 seconds. It listens on a Unix socket only.",
			Files: daemonFiles("gauthd", "/var/lib/greylag/auth", "certificate and key"),
			See:   []string{"gctl(1)", "gctl-join(1)", "gauthd.toml(5)", "greylag-client.toml(5)", "gctld(8)"},
		},
		helper("gshim", "containerd shim of Greylag", "containerd starts it for each task. It starts gshimd, or passes a call on to it."),
		helper("gshimd", "process of the containerd shim for one task", "gshim starts it. It controls one task for containerd, and ends with it."),
		helper("ginit", "init process of a task", "gnoded mounts it into the task. It opens the output as the user, passes signals on, and records how the task ended."),
		helper("gstepd", "process that runs a step's tasks on one node", "The init process of the job's task starts it. It runs the tasks as the job's user, and passes their output to grun."),
		helper("gnvml", "helper that calls the NVIDIA Management Library (NVML)", "gnoded starts it, because a call on a lost GPU may never return."),
		reference("gctld.toml", "gctld", "gctld(8)", "gctl-config-check(1)"),
		reference("gnoded.toml", "gnoded", "gnoded(8)", "gctl-config-check(1)"),
		reference("gauthd.toml", "gauthd", "gauthd(8)", "gctl-config-check(1)"),
		reference("greylag-client.toml", "client", "gsubmit(1)", "gqueue(1)", "gcancel(1)", "gctl(1)", "gctl-config-check(1)"),
		reference("greylag-policy.toml", "policy", "gctl-apply(1)", "gctl-show-policy(1)", "gctl-config-check(1)", "greylag-accounts.toml(5)"),
		reference("greylag-accounts.toml", "accounts", "gctl-account-load(1)", "gctl-account-dump(1)", "greylag-policy.toml(5)"),
		reference("greylag-topology", "topology", "gctl-topology-import(1)", "gctl-config-check(1)"),
		reference("greylag-machine.toml", "machine", "gsim-replay(1)", "greylag-topology(5)"),
	}
}

// helper is a program of the node daemon that people do not start.
func helper(name, summary, about string) Source {
	return Source{
		Name: name, Section: 8, Summary: summary, See: []string{"gnoded(8)"},
		About: about + " It is in the directory of gnoded and is not started by hand.",
	}
}

// reference is the page of a file.
func reference(name, doc string, see ...string) Source {
	return Source{Name: name, Section: 5, Reference: doc, See: see}
}

// Base returns a page with what its source says. The caller adds the help or the reference.
func (s *Source) Base() *Page {
	p := &Page{Name: s.Name, Section: s.Section, Summary: s.Summary}
	if !s.Help && s.Reference == "" {
		p.add(synopsis, block{kind: unfilled, text: bold(s.Name)})
	}
	if s.About != "" {
		p.Describe(s.About)
	}
	for _, f := range s.Files {
		p.AddFile(f[0], f[1])
	}
	for _, v := range s.Variables {
		p.AddVariable(v[0], v[1])
	}
	if len(s.See) > 0 {
		p.SeeAlso(s.See...)
	}
	return p
}
