package tool

import (
	"github.com/spf13/cobra"

	"github.com/greylag/greylag/internal/cli/ui"
)

// TableForm is the format of a table: for people, or with | for programs.
type TableForm struct{ Parsable, Parsable2, NoHeader bool }

// AddFlags adds the options that choose the form.
func (f *TableForm) AddFlags(c *cobra.Command) {
	c.Flags().BoolVarP(&f.Parsable, "parsable", "p", false, "separate fields with |, with a trailing |")
	c.Flags().BoolVarP(&f.Parsable2, "parsable2", "P", false, "separate fields with |")
	c.Flags().BoolVarP(&f.NoHeader, "noheader", "n", false, "no header line")
	c.MarkFlagsMutuallyExclusive("parsable", "parsable2")
}

// WriteTableAs prints a table in a form.
func (t *Tool) WriteTableAs(table ui.Table, form TableForm) error {
	table.Bare = form.NoHeader
	switch {
	case form.Parsable:
		return t.WriteParsable(table, "|")
	case form.Parsable2:
		return t.WriteParsable(table, "")
	}
	return t.WriteTable(table)
}
