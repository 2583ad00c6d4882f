package gsim

import (
	"fmt"
	"os"
	"time"

	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/sim/cloud"
	"github.com/greylag/greylag/internal/sim/cloudsim"
	"github.com/greylag/greylag/pkg/cluster"
)

// clouds holds the options of a simulated cloud.
type clouds struct {
	offers string
	prices string
}

func (k *clouds) flags(c *cobra.Command, option, instead string) {
	f := c.Flags()
	f.StringVar(&k.offers, option, "", "table of the cloud's offers"+instead+" (see docs/gsim.md)")
	f.StringVar(&k.prices, "spot-prices", "", "price history of the spot offers, as of aws ec2 describe-spot-price-history")
}

// read returns the kinds of nodes that the options describe; otherwise those that are given.
func (k *clouds) read(option string, otherwise []cloud.Kind) ([]cloud.Kind, error) {
	kinds := otherwise
	if k.offers != "" {
		f, err := os.Open(k.offers)
		if err != nil {
			return nil, &ui.UsageError{Problem: err.Error()}
		}
		defer f.Close()
		if kinds, err = cloud.ReadKinds(f); err != nil {
			return nil, &ui.UsageError{Problem: fmt.Sprintf("%s: %v", k.offers, err)}
		}
	}
	switch {
	case k.prices == "":
		return kinds, nil
	case k.offers == "":
		return nil, &ui.UsageError{Problem: "--spot-prices " + k.prices + " without --" + option + " has no effect", Advice: "describe the offers, which a price history does not, with --" + option}
	}
	f, err := os.Open(k.prices)
	if err != nil {
		return nil, &ui.UsageError{Problem: err.Error()}
	}
	defer f.Close()
	if err := cloud.ReadPrices(f, kinds); err != nil {
		return nil, &ui.UsageError{Problem: fmt.Sprintf("%s: %v", k.prices, err)}
	}
	return kinds, nil
}

// readAmount reads a value of an option that is an amount of the policy's currency.
func readAmount(option, text string) (int64, error) {
	n, err := cluster.ParseMoney(text)
	if err != nil {
		return 0, &ui.UsageError{Problem: "--" + option + ": " + err.Error()}
	}
	return n, nil
}

// readRule reads a value of --rules.
func readRule(option, text string) (string, error) {
	if _, err := cloudsim.ParseRule(text); err != nil {
		return "", &ui.UsageError{Problem: "--" + option + ": " + err.Error(), Advice: "write none, immediate, queue>10, wait>4h or value=0.5"}
	}
	return text, nil
}

// bursting holds the options of a policy's rules of cloud nodes.
type bursting struct {
	value string
	nodes int32
	idle  time.Duration
	set   func(option string) bool
}

func (b *bursting) flags(c *cobra.Command) {
	b.set = c.Flags().Changed
	f := c.Flags()
	f.StringVar(&b.value, "burst-value", "", "with --burst: what an hour less of waiting is worth for each GPU, in every QOS (default: as the policy says)")
	f.Int32Var(&b.nodes, "max-nodes", 0, "with --burst: most cloud nodes at a time (default: as the policy says)")
	f.DurationVar(&b.idle, "idle", 0, "with --burst: for how long an idle cloud node is kept (default: as the policy says)")
}

// applyTo changes a policy as the options say.
func (b *bursting) applyTo(p *cluster.Policy) error {
	if b.value != "" {
		n, err := readAmount("burst-value", b.value)
		if err != nil {
			return err
		}
		p.QOS = append([]cluster.QOS(nil), p.QOS...)
		for i := range p.QOS {
			p.QOS[i].BurstValue = n
		}
	}
	if b.set("max-nodes") {
		p.Burst.MaxNodes = b.nodes
	}
	if b.set("idle") {
		p.Burst.IdleTime = b.idle
	}
	if b.nodes < 0 || b.idle < 0 {
		return &ui.UsageError{Problem: "--max-nodes and --idle may not be negative"}
	}
	return nil
}
