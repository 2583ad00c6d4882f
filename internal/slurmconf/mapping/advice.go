package mapping

import "strings"

// wordSet returns the words of a text.
func wordSet(text string) map[string]bool {
	all := map[string]bool{}
	for _, w := range strings.Fields(text) {
		all[w] = true
	}
	return all
}

// The settings that need no counterpart: paths, ports, logs and protocols of Slurm's own programs,
// what nodes report themselves, and what is always so here.
var (
	ignoredSettings = wordSet(`accountingstoragebackuphost accountingstorageexternalhost accountingstoragehost
		accountingstorageparameters accountingstoragepass accountingstorageport accountingstoragetres
		accountingstoragetype accountingstorageuser acctgatherenergytype acctgatherfilesystemtype
		acctgatherinterconnecttype acctgathernodefreq acctgatherprofiletype authaltparameters authalttypes
		authinfo authtype backupaddr backupcontroller batchstarttimeout bcastexclude bcastparameters
		certgentype certmgrparameters certmgrtype communicationparameters completewait controladdr
		controlmachine credtype cryptotype dataparserparameters debugflags eiotimeout enforcepartlimits
		epilogmsgtime fastschedule getenvtimeout grestypes groupupdateforce groupupdatetime hashplugin
		inactivelimit jobacctgatherfrequency jobacctgatherparams jobacctgathertype jobcomphost jobcomploc
		jobcompparams jobcomppass jobcompport jobcomptype jobcompuser jobcredentialprivatekey
		jobcredentialpubliccertificate keepalivetime launchparameters launchtype logtimeformat
		maxdbdmsgs maxjobid maxnodecount maxstepcount maxtaskspernode messagetimeout metricstype minjobage
		mpiparams plugindir prioritycalcperiod proctracktype prologflags reconfigflags returntoservice
		routeplugin sbcastparameters schedulertimeslice selecttype selecttypeparameters slurmctldaddr
		slurmctlddebug slurmctldhost slurmctldlogfile slurmctldparameters slurmctldpidfile slurmctldport
		slurmctldsyslogdebug slurmctldtimeout slurmddebug slurmdlogfile slurmdparameters slurmdpidfile
		slurmdport slurmdspooldir slurmdsyslogdebug slurmduser slurmschedlogfile slurmschedloglevel
		slurmuser srunportrange statesavelocation switchparameters switchtype taskplugin taskpluginparam
		tcptimeout tlsparameters tlstype topologyparam topologyplugin treewidth unkillablesteptimeout
		urlparsertype vsizefactor waittime accountingstoreflags cpufreqgovernors`)
	knownOfNode = wordSet(`nodename nodeaddr nodehostname bcastaddr boards corespersocket corespeccount cpus cpubind
		cpuspeclist extra feature features gres memspeclimit parameters port procs realmemory reason
		restrictedcorespergpu sockets socketsperboard state threadspercore tmpdisk topology weight`)
	knownOfGRES          = wordSet(`name type file cores cpus links count flags autodetect nodename multiplefiles ignore`)
	convertedOfPartition = wordSet(`nodes default maxtime defaulttime maxnodes allowaccounts priority prioritytier
		defmempercpu defmempergpu state tresbillingweights`)
	ignoredOfPartition = wordSet(`lln cpubind resumetimeout suspendtimeout suspendtime topology shared selecttypeparameters`)
)

const (
	notYet  = "not available yet"
	hook    = "set prolog and epilog in gnoded.toml of each node: root runs them before and after each task"
	inQOS   = "use a QOS with limits that the users of the partition must name"
	memory  = "use MaxTRESPerNode=mem=SIZE of a QOS or account"
	power   = "nodes are not powered down or started on demand"
	perUnit = "tasks get the limits of gnoded.service for open files and locked memory"
)

// settingAdvice says what to do about settings of slurm.conf without a counterpart.
var settingAdvice = map[string]string{
	"allowspecresourcesusage": "set cpus and memory in gnoded.toml to reserve some for the system",
	"burstbuffertype":         "burst buffers are not supported",
	"clifilterparameters":     "cli_filter plugins are not run", "clifilterplugins": "cli_filter plugins are not run",
	"cpufreqdef": "CPU clocks are not set for jobs", "gpufreqdef": "GPU clocks are not set for jobs",
	"defcpupergpu": "jobs request CPUs: --cpus-per-task, --cpus-per-gpu", "defmempernode": "use mem_per_cpu or mem_per_gpu of the partitions",
	"dependencyparameters": "a dependency that can never be satisfied keeps the job pending",
	"disablerootjobs":      "root may submit jobs; to prevent that, give root no account",
	"epilog":               hook, "prolog": hook, "epilogslurmctld": "no program runs on controllers: " + hook, "prologslurmctld": "no program runs on controllers: " + hook,
	"epilogtimeout": "set hook_timeout in gnoded.toml", "prologtimeout": "set hook_timeout in gnoded.toml", "prologepilogtimeout": "set hook_timeout in gnoded.toml",
	"extsensorstype": "external sensors are not read", "extsensorsfreq": "external sensors are not read",
	"fairsharedampeningfactor": "the factor is always 1",
	"federationparameters":     "federations are not supported",
	"healthcheckinterval":      "the health program is not run", "healthchecknodestate": "the health program is not run",
	"healthcheckprogram":     "set health.program in gnoded.toml of each node, and MARK_OFFLINE=0 in the configuration of NHC",
	"interactivestepoptions": "interactive jobs are " + notYet,
	"jobcontainertype":       "every task has a private /tmp", "namespacetype": "every task has a private /tmp",
	"jobfileappend": "output files are truncated at job start; jobs can set --open-mode=append",
	"jobsubmitplugins": "job_submit plugins are not run: write a submission filter ([submit] in gctld.toml), or use limits " +
		"of QOS and accounts, allow_accounts of partitions, and require_account",
	"killonbadexit": "srun is " + notYet,
	"maildomain":    "mail about jobs is not sent; use gsubmit --wait", "mailprog": "mail about jobs is not sent; use gsubmit --wait",
	"maxmempercpu": memory, "maxmempernode": memory,
	"mcsparameters": "MCS labels are not supported", "mcsplugin": "MCS labels are not supported",
	"mpidefault":          "srun is " + notYet + ": start ranks with the MPI's own mpirun, or torchrun with --every-node",
	"nodefeaturesplugins": "features are static: nodes are not rebooted for a job",
	"overtimelimit":       "jobs end at their time limit: raise max_time",
	"plugstackconfig":     "SPANK plugins are not run; for containers use gsubmit --image",
	"powerparameters":     power, "powerplugin": power,
	"preemptparameters": "not converted: a preempted job gets SIGTERM, and SIGKILL after kill_wait",
	"prepparameters":    hook, "prepplugins": hook,
	"priorityfavorsmall": "job_size favours large jobs",
	"priorityparameters": "not converted",
	"prioritysitefactor": "no program computes priorities", "prioritysitefactorparameters": "no program computes priorities", "prioritysitefactorplugin": "no program computes priorities",
	"priorityweightassoc":  "accounts have no priority: use QOS or shares",
	"priorityweighttres":   "use job_size in [scheduling.weights]",
	"propagateprioprocess": "the nice value of the shell is not passed on", "propagateresourcelimits": perUnit, "propagateresourcelimitsexcept": perUnit,
	"rebootprogram": "set reboot_program in gnoded.toml of each node, or leave it out: the default is systemctl reboot",
	"requeueexit":   "jobs are requeued after cluster failures only", "requeueexithold": "jobs are requeued after cluster failures only",
	"resumefailprogram": power, "resumeprogram": power, "resumerate": power,
	"suspendexcnodes": power, "suspendexcparts": power, "suspendexcstates": power, "suspendprogram": power, "suspendrate": power, "suspendtime": power, "suspendtimeout": power,
	"resvepilog": "no program runs for a reservation", "resvprolog": "no program runs for a reservation",
	"resvoverrun":             "a reservation ends at its time",
	"scronparameters":         "scrontab is not available; use cron on a login node with gsubmit",
	"slurmctldprimaryoffprog": "no program runs when the leader changes", "slurmctldprimaryonprog": "no program runs when the leader changes",
	"srunepilog": "srun is " + notYet, "srunprolog": "srun is " + notYet,
	"taskepilog": "put it into the job script", "taskprolog": "put it into the job script",
	"tmpfs":                 "set scratch_dir in gnoded.toml to a directory of the local disk; jobs request space there with --tmp",
	"trackwckey":            "workload keys of gsubmit --wckey are always recorded: gctl report wckeys",
	"unkillablestepprogram": "not run; a node whose tasks cannot be killed takes no new jobs and reports the reason",
	"usepam":                "PAM is not called for tasks",
	"x11parameters":         "X11 is not forwarded",
}

// partitionAdvice does for settings of a partition.
var partitionAdvice = map[string]string{
	"allocnodes":        "jobs can be submitted from every login node",
	"allowgroups":       "Unix groups are not checked: make an account of the group's users and use allow_accounts",
	"allowqos":          "grant the QOS to accounts (qos in accounts.toml) instead of a partition",
	"alternate":         "jobs may name several partitions",
	"cpuspertask":       inQOS,
	"defcpupergpu":      "jobs must request CPUs with --cpus-per-task or --cpus-per-gpu",
	"defmempernode":     "use mem_per_cpu or mem_per_gpu",
	"denyaccounts":      "list all other accounts in allow_accounts",
	"denyqos":           "do not grant the QOS to the accounts of the partition",
	"disablerootjobs":   "root may submit jobs; to prevent that, give root no account",
	"exclusivetopo":     "jobs must request --exclusive",
	"exclusiveuser":     "jobs must request --exclusive",
	"gracetime":         "a preempted job gets SIGTERM, and SIGKILL after kill_wait",
	"hidden":            "partitions are visible to all users",
	"jobdefaults":       "jobs request CPUs and memory; mem_per_gpu is the default memory",
	"maxcpuspernode":    "use MaxTRESPerNode=cpu=N of a QOS or account",
	"maxcpuspersocket":  "use MaxTRESPerNode=cpu=N of a QOS or account",
	"maxmempercpu":      memory,
	"maxmempernode":     memory,
	"minnodes":          inQOS,
	"oversubscribe":     "CPUs and GPUs are never shared; for whole nodes, jobs request --exclusive",
	"overtimelimit":     "jobs end at their time limit: raise max_time",
	"powerdownonidle":   power,
	"preemptmode":       "preemption is between QOS: preempts and preempt_mode",
	"priorityjobfactor": "the priority of a partition is a tier, compared before the multifactor priority",
	"qos":               "a partition has no QOS of its own: " + inQOS,
	"reqresv":           "use a reservation for the nodes",
	"rootonly":          "use allow_accounts with an account of the administrators",
}

// nodeAdvice does for settings of a node.
var nodeAdvice = map[string]string{
	"corespeccount": "set cpus in gnoded.toml to the number for jobs",
	"cpuspeclist":   "set cpus in gnoded.toml to the number for jobs",
	"memspeclimit":  "set memory in gnoded.toml to the amount for jobs",
	"weight":        "nodes have no weight: placement follows the topology",
}

// fileAdvice does for other files of Slurm's folder.
var fileAdvice = map[string]string{
	"acct_gather.conf":   "energy, file system and profile data are not collected; gctl show job has GPU usage",
	"burst_buffer.conf":  "burst buffers are not supported",
	"cgroup.conf":        "not needed: CPU, memory and device limits are always enforced",
	"cli_filter.lua":     "cli_filter plugins are not run",
	"helpers.conf":       "features are static",
	"job_container.conf": "every task has a private /tmp",
	"job_submit.lua":     settingAdvice["jobsubmitplugins"],
	"mpi.conf":           settingAdvice["mpidefault"],
	"oci.conf":           "for containers use gsubmit --image",
	"plugstack.conf":     settingAdvice["plugstackconfig"],
	"scrun.lua":          "for containers use gsubmit --image",
}
