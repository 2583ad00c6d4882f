package gctl

import (
	"fmt"
	"strings"

	"github.com/greylag/greylag/internal/cli/ui"
)

// slurmWords are words that scontrol understands after its name, or after "show", and
// Slurm's commands, with what does the same here.
var slurmWords = map[string]string{
	"suspend":     "jobs are not suspended: gctl requeue JOB ends one and runs it again, gctl hold JOB keeps back one that waits",
	"requeuehold": "gctl requeue JOB, and then gctl hold JOB",
	"uhold":       "gctl hold JOB: its owner may release it", "top": "gctl update job JOB nice=-N, as an operator",
	"ping": "gctl cluster status", "reconfigure": "gctl apply -f FILE changes the policy at once; controllers and nodes are started again for their own files",
	"takeover": "gctl cluster transfer", "shutdown": "systemctl stop gctld, on each controller",
	"create":   "partitions and reservations are in the policy: gctl show policy, then gctl apply -f FILE",
	"delete":   "partitions and reservations are in the policy: gctl show policy, then gctl apply -f FILE",
	"wait_job": "gsubmit --wait, or gctl logs -f JOB", "listpids": "gctl show job JOB", "write": "gctl script JOB prints a job's script",
	"sprio": "gctl priority", "sshare": "gctl shares", "sacct": "gctl acct", "sinfo": "gctl info", "sreport": "gctl report",
	"sbatch": "gsubmit", "squeue": "gqueue", "scancel": "gcancel", "sacctmgr": "gctl account",
	"scontrol":    "gctl show, gctl update, gctl drain, ...: see gctl --help",
	"show jobs":   "gqueue lists jobs; gctl show job JOB tells all about one",
	"show config": "gctl show policy",
	"show steps":  "jobs have no steps: gctl show job JOB", "show step": "jobs have no steps: gctl show job JOB",
	"show assoc_mgr": "gctl account list", "show topology": "gctl topology show", "show daemons": "gctl cluster status",
	"show hostnames": "gctl nodes NODES lists nodes one a line",
}

// slurmWord is what does here what a word after a command does with scontrol.
func slurmWord(path, word string) string {
	_, below, _ := strings.Cut(path, " ")
	return slurmWords[strings.ToLower(strings.TrimSpace(below+" "+word))]
}

// nodeUpdate refuses scontrol's way to change a node, and says ours.
func nodeUpdate(words []string) error {
	nodes, state := "", ""
	for _, word := range words {
		switch name, value, _ := strings.Cut(word, "="); strings.ToLower(name) {
		case "nodename", "node":
			nodes = value
		case "state":
			state = strings.ToUpper(value)
		}
	}
	if nodes == "" {
		return nil
	}
	advice := fmt.Sprintf("gctl drain %s --reason TEXT, gctl resume %s", nodes, nodes)
	switch state {
	case "DRAIN", "DOWN", "FAIL":
		advice = fmt.Sprintf("gctl drain %s --reason TEXT", nodes)
	case "RESUME", "UNDRAIN", "IDLE":
		advice = "gctl resume " + nodes
	}
	return &ui.UsageError{Problem: "update changes jobs, not nodes", Advice: advice}
}
