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

// trials is the options that say what goes wrong, and what jobs cost.
type trials struct {
	faults string
	price  string
	grant  string
	every  int
}

// everyFew is after how many commands all is recomputed, where nothing else is said.
const everyFew = 1000

func (t *trials) flags(c *cobra.Command) {
	f := c.Flags()
	f.StringVar(&t.faults, "faults", "", "what goes wrong, such as node-mtbf=30d,fail=5%, or a file of such words (see docs/gsim.md)")
	f.StringVar(&t.price, "price", "", "credits of a GPU-hour, or of each type: h100=2,a100=1.2; jobs are paid for then")
	f.StringVar(&t.grant, "grant", "1000000", "credits that each account begins with, where there is a --price")
	f.IntVar(&t.every, "check-every", everyFew, "with --faults or --price: recompute all after so many commands; --check is after each")
}

// read is what was asked for; nil when nothing was.
func (t *trials) read(seed uint64, check bool) (*faultsim.Options, error) {
	if t.faults == "" && t.price == "" {
		return nil, nil
	}
	x := &faultsim.Options{Seed: seed, Every: t.every}
	if check {
		x.Every = 1
	}
	if x.Every < 1 {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("--check-every %d is no number of commands", t.every), Advice: "1 is after each"}
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
		return nil, &ui.UsageError{Problem: "--grant " + t.grant + " is no amount of credits", Advice: "write it like 5000 or 0.5"}
	}
	return x, nil
}

// priced refuses prices of some types of GPU where the machine has others as well: a job
// on those is not free, it is refused.
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

// mix is that of the option, or of the file that it names.
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
		if _, twice := all[name]; err != nil || price < 1 || twice {
			return nil, &ui.UsageError{Problem: "--price " + text + " makes no sense", Advice: "write one price such as 2, or h100=2,a100=1.2"}
		}
		all[name] = price
	}
	return all, nil
}

// troubles is what went wrong, for people.
func troubles(t *sim.FaultSummary) [][2]string {
	var kinds []string
	for _, k := range slices.Sorted(maps.Keys(t.Faults)) {
		kinds = append(kinds, fmt.Sprintf("%d %s", t.Faults[k], strings.ReplaceAll(k, "_", " ")))
	}
	out := [][2]string{
		{"seed", fmt.Sprint(t.Seed)},
		{"attempts", fmt.Sprintf("%d, %d lost with nodes and GPUs, %d preempted, %d began anew", t.Attempts, t.Lost, t.Preempted, t.Requeued)},
		{"GPU-hours", fmt.Sprintf("%.1f, of which %.1f were lost", t.GPUHours, t.GPUHoursLost)},
	}
	if len(kinds) > 0 {
		out = append(out, [2]string{"went wrong", strings.Join(kinds, ", ")})
	}
	if m := t.Credits; m != nil {
		out = append(out, [2]string{"credits", fmt.Sprintf("%s granted, %s charged, %s of it given back; %s held and %s owed at the end", m.Granted, m.Charged, m.Refunded, m.Held, m.Debt)})
	}
	k := &t.Checks
	return append(out, [2]string{"checks", fmt.Sprintf("%d commands, %d entries of the journal, the whole state %d times, rebuilt from the log %d times: %d violations", k.Commands, k.Entries, k.Whole, k.Rebuilt, k.Violations)})
}
