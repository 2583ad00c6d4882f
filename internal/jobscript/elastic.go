package jobscript

import (
	"fmt"
	"strings"
	"syscall"

	"github.com/greylag/greylag/pkg/cluster"
)

// parseStep reads "step:4".
func parseStep(word string) (int32, error) {
	count, is := strings.CutPrefix(word, "step:")
	n, err := parseCount(count, 1)
	if !is || err != nil {
		return 0, advise(fmt.Sprintf("invalid value %q", word), "write --elastic, or --elastic=step:4 for multiples of 4 nodes")
	}
	return n, nil
}

func setResizeSignal(o *Options, word string) error {
	word, o.Elastic.BatchOnly = strings.CutPrefix(word, "B:")
	n, err := ParseSignal(word)
	if err != nil {
		return err
	}
	o.Elastic.Signal = n
	if s := syscall.Signal(n); s == syscall.SIGKILL || s == syscall.SIGSTOP {
		return advise("no program can handle "+cluster.SignalName(n), "use --resize-signal=USR1")
	}
	return nil
}

// finishElastic checks the options of elastic jobs against each other.
func (r *resolver) finishElastic(o *Options) {
	e, q := o.Elastic, &o.Request
	switch extra := q.MaxNodes - q.Nodes; {
	case !e.On() && e.Signal != 0:
		r.fault("--resize-signal", "requires --elastic", "add --elastic and a range of nodes, such as --nodes=4-16")
	case !e.On():
	case q.MaxNodes == 0:
		r.fault("--elastic", "requires a range of nodes", "give the minimum and the maximum: --nodes=4-16")
	case extra%e.Step != 0:
		r.fault("--elastic", fmt.Sprintf("a step of %d does not divide the %d nodes between minimum and maximum", e.Step, extra),
			fmt.Sprintf("use --nodes=%d-%d or another step", q.Nodes, q.Nodes+max(extra/e.Step, 1)*e.Step))
	case q.Switches > 0 || q.Connect == cluster.ConnectLeaf || q.Connect == cluster.ConnectNVLink:
		r.fault("--elastic", "cannot be combined with --switches, --connect=leaf or --connect=nvlink: extra nodes may be under any switch", "remove --elastic or the other option; --connect=nvlink-node links the GPUs of each node")
	}
}
