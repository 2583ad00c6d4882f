package gsim

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/sim"
	"github.com/greylag/greylag/internal/sim/faults"
	"github.com/greylag/greylag/internal/sim/faultsim"
	"github.com/greylag/greylag/pkg/accounting"
)

// trials holds the options of faults and prices.
type trials struct {
	faults string
	price  string
	grant  string
	every  int
}

// everyFew is the default of --check-every.
const everyFew = 1000

func (t *trials) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.faults, "faults", "", "faults to inject (node-mtbf=30d,fail=5%), or a file (see docs/gsim.md)")
	f.StringVar(&t.price, "price", "", "credits per GPU-hour, or of each type: h100=2,a100=1.2; jobs are then charged")
	f.StringVar(&t.grant, "grant", "1000000", "initial credits of each account with --price")
	f.IntVar(&t.every, "check-every", everyFew, "with --faults or --price: recompute the whole state after this many commands; --check is after each")
}

// read returns the requested faults and prices; nil if there are none.
func (t *trials) read(seed uint64, check bool) (*faultsim.Options, error) {
	if t.faults == "" && t.price == "" {
		return nil, nil
	}
	x := &faultsim.Options{Seed: seed, Every: t.every}
	if check {
		x.Every = 1
	}
	if x.Every < 1 {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("--check-every %d is not a number of commands", t.every), Advice: "1 is after each"}
	}
	mix, err := t.mix()
	if err != nil {
		return nil, err
	}
	x.Faults = mix
	if t.price == "" {
		return x, nil
	}
	if x.Prices, err = prices(t.price); err != nil {
		return nil, err
	}
	if x.Grant, err = accounting.ParseCredits(t.grant); err != nil || x.Grant < 1 {
		return nil, &ui.UsageError{Problem: "--grant " + t.grant + " is not an amount of credits", Advice: "write it like 5000 or 0.5"}
	}
	return x, nil
}

// priced refuses prices that lack some GPU type of the machine: a job on it is not free but
// refused.
func (t *trials) priced(x *faultsim.Options, f *sim.Machine) error {
	if x == nil || len(x.Prices) == 0 || x.Prices[""] > 0 {
		return nil
	}
	missing := map[string]bool{}
	for i := range f.Nodes {
		for _, g := range f.Nodes[i].GPUs {
			if x.Prices[g.Type] == 0 {
				missing[g.Type] = true
			}
		}
	}
	if len(missing) == 0 {
		return nil
	}
	types := slices.Sorted(maps.Keys(missing))
	return &ui.UsageError{
		Problem: fmt.Sprintf("--price %s: no price for GPU type %s", t.price, strings.Join(types, ", ")),
		Advice:  "add " + strings.Join(types, "=AMOUNT,") + "=AMOUNT, or write one price for all types, such as --price 2",
	}
}

// mix returns the faults of the option, or of the file that it names.
func (t *trials) mix() (faults.Mix, error) {
	text, name := t.faults, ""
	if text != "" && !strings.Contains(text, "=") {
		file, err := os.ReadFile(text)
		if err != nil {
			return faults.Mix{}, &ui.UsageError{Problem: "--faults: " + err.Error(), Advice: "name a file, or write words such as node-mtbf=30d"}
		}
		text, name = string(file), t.faults
	}
	mix, err := faults.Parse(name, text)
	if err != nil {
		return mix, &ui.UsageError{Problem: "--" + strings.ReplaceAll(err.Error(), "\n"+faults.ErrMix.Error()+": ", "; "), Advice: "docs/gsim.md lists the words"}
	}
	return mix, nil
}

// prices reads one price, or those of types of GPU.
func prices(text string) (map[string]accounting.Credits, error) {
	all := map[string]accounting.Credits{}
	for word := range strings.SplitSeq(text, ",") {
		name, value, typed := strings.Cut(word, "=")
		if !typed {
			name, value = "", word
		}
		price, err := accounting.ParseCredits(value)
		if _, duplicate := all[name]; err != nil || price < 1 || duplicate {
			return nil, &ui.UsageError{Problem: "--price " + text + " is invalid", Advice: "write one price such as 2, or h100=2,a100=1.2"}
		}
		all[name] = price
	}
	return all, nil
}

// faultFacts returns the faults and checks as text.
func faultFacts(t *sim.FaultSummary) [][2]string {
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(t.Faults)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", t.Faults[k], strings.ReplaceAll(k, "_", " ")))
	}
	out := [][2]string{
		{"seed", fmt.Sprint(t.Seed)},
		{"attempts", fmt.Sprintf("%d, %d lost with nodes and GPUs, %d preempted, %d requeued", t.Attempts, t.Lost, t.Preempted, t.Requeued)},
		{"GPU-hours", fmt.Sprintf("%.1f, %.1f of them lost", t.GPUHours, t.GPUHoursLost)},
	}
	if len(kinds) > 0 {
		out = append(out, [2]string{"faults", strings.Join(kinds, ", ")})
	}
	if m := t.Credits; m != nil {
		out = append(out, [2]string{"credits", fmt.Sprintf("%s granted, %s charged, %s of it refunded; %s held and %s owed at the end", m.Granted, m.Charged, m.Refunded, m.Held, m.Debt)})
	}
	k := &t.Checks
	return append(out, [2]string{"checks", fmt.Sprintf("%d commands, %d entries of the journal, the whole state %d times, rebuilt from the log %d times: %d violations", k.Commands, k.Entries, k.Whole, k.Rebuilt, k.Violations)})
}
