package gctl

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	greylagv1 "github.com/greylag/greylag/api/gen/greylag/v1"
	"github.com/greylag/greylag/internal/cli/gctl/tool"
	"github.com/greylag/greylag/internal/cli/ui"
	"github.com/greylag/greylag/internal/wire"
)

// verifyFailed is the exit status for it.
const verifyFailed ui.Status = 4

func (t commands) verify() *cobra.Command {
	c := &cobra.Command{
		Use: "verify", Short: "Recompute the journals from their first entries", Args: cobra.NoArgs, GroupID: tool.GroupCluster,
		Long: `Recomputes the credit and audit journals of the controller that responds (it
is printed): every hash, sum and balance from the first entry. Compares the
result with the state. Prints the first wrong entry, if any; the exit status
is then 4.`,
		RunE: t.On(func(ctx context.Context, c ui.Cluster, _ []string) error {
			a, err := c.Credits().VerifyJournals(ctx, &greylagv1.VerifyJournalsRequest{})
			if err != nil {
				return err
			}
			return t.verified(a)
		}),
	}
	t.AddControllerFlag(c)
	return c
}

// checkedFrom describes from which entry on a journal could be checked; "" for all.
func checkedFrom(first uint64) string {
	if first == 0 {
		return ""
	}
	return fmt.Sprintf(", checked from entry %d on: a backup without history was restored", first)
}

func (t commands) verified(a *greylagv1.VerifyJournalsResponse) error {
	type journalJSON struct {
		Controller string `json:"controller"`
		Name       string `json:"name"`
		Entries    uint64 `json:"entries"`
		Head       string `json:"head"`
		Wrong      uint64 `json:"wrong,omitempty"`
		Fault      string `json:"fault,omitempty"`
		First      uint64 `json:"first,omitempty"` // older entries were left out of a backup
	}
	all, wrong := []journalJSON{}, false
	if !t.JSON {
		if err := t.Printed(nil, "controller %s", a.Controller); err != nil {
			return err
		}
	}
	for _, j := range a.Journals {
		all = append(all, journalJSON{a.Controller, wire.Word(j.Name), j.Entries, fmt.Sprintf("%x", j.Head), j.BadEntry, j.Fault, j.FirstEntry})
		if wrong = wrong || j.Fault != ""; t.JSON {
			continue
		}
		if j.Fault != "" {
			t.Complain(wire.Word(j.Name)+": "+j.Fault, "save a copy of the controllers' data_dir; another controller's journal may be intact: gctl cluster status lists them, gctl verify --controller HOST:PORT asks one")
		} else if err := t.Printed(nil, "%s: %s, head %x%s", wire.Word(j.Name), ui.Count(int64(j.Entries), "entry"), j.Head, checkedFrom(j.FirstEntry)); err != nil {
			return err
		}
	}
	if t.JSON {
		if err := t.WriteJSON(all); err != nil {
			return err
		}
	}
	if wrong {
		return ui.Exit(verifyFailed)
	}
	return nil
}
