package accounting

import (
	"github.com/greylag/greylag/internal/codec"
)

// Bounds of a command's fields, so that a record stays far below a chunk.
const (
	maxText = 256  // bytes of a name of a GPU type, partition, QOS, code or period
	maxNode = 1024 // bytes of the name of an account
	maxList = 256  // entries of a list
)

// The fields of payloads and records, in their canonical order. Package codec describes how they
// may grow.

func nodeID(c *codec.Coder, x *PayerID) { codec.String(c, (*string)(x)) }

func chainFields(c *codec.Coder, x *PayerPath) { codec.List(c, (*[]PayerID)(x), nodeID) }

func lienID(c *codec.Coder, x *LienID) {
	codec.Uint(c, &x.Job)
	codec.Uint(c, &x.Attempt)
}

func budgetFields(c *codec.Coder, x *Budget) {
	codec.Int(c, &x.Limit)
	codec.Bool(c, &x.Hard)
	codec.Uint(c, &x.Window)
}

func scopeFields(c *codec.Coder, x *BucketScope) {
	codec.List(c, &x.GPUTypes, codec.String)
	codec.List(c, &x.Partitions, codec.String)
	codec.List(c, &x.QOS, codec.String)
	codec.Int(c, &x.Permille)
	codec.Int(c, &x.PerJob)
}

func grantFields(c *codec.Coder, x *Grant) {
	chainFields(c, &x.Owner)
	codec.Uint(c, &x.Class)
	codec.Int(c, &x.Amount)
	codec.Int(c, &x.Effective)
	codec.Int(c, &x.Expires)
	codec.Int(c, &x.Priority)
	codec.Record(c, &x.Scope, scopeFields)
	codec.Bool(c, &x.Cutoff)
	codec.String(c, &x.Code)
	codec.Int(c, &x.MaxRedemptions)
}

func rate(c *codec.Coder, x *Rate) {
	codec.String(c, &x.GPUType)
	codec.Int(c, &x.Price)
}

func claimFields(c *codec.Coder, x *Claim) {
	lienID(c, &x.ID)
	chainFields(c, &x.Chain)
	codec.String(c, &x.Partition)
	codec.String(c, &x.QOS)
	codec.List(c, &x.Rates, rate)
	codec.Int(c, &x.Amount)
	codec.Bool(c, &x.Floating)
	codec.List(c, &x.Partitions, codec.String)
}

func settlementFields(c *codec.Coder, x *Settlement) {
	lienID(c, &x.Lien)
	codec.Int(c, &x.Total)
	codec.Bool(c, &x.Provisional)
}

func refundFields(c *codec.Coder, x *Refund) {
	lienID(c, &x.Lien)
	codec.Int(c, &x.Amount)
	codec.Uint(c, &x.Corrects)
	codec.Int(c, &x.Effective)
}

func closingFields(c *codec.Coder, x *Closing) {
	codec.String(c, &x.Name)
	codec.Int(c, &x.End)
	codec.Uint(c, &x.Seq)
	codec.Fixed(c, x.Head[:])
}

func warning(c *codec.Coder, x *Warning) {
	nodeID(c, &x.Node)
	codec.Int(c, &x.Used)
	codec.Int(c, &x.Limit)
}

func receiptFields(c *codec.Coder, x *Receipt) {
	codec.Uint(c, &x.Bucket)
	lienID(c, &x.Lien)
	for _, sum := range [...]*Credits{&x.Held, &x.Charged, &x.Released, &x.Returned, &x.Debt, &x.Repaid} {
		codec.Int(c, sum)
	}
	codec.List(c, &x.Warnings, warning)
	codec.String(c, &x.By)
	codec.Int(c, &x.Lost)
}

func refusalFields(c *codec.Coder, x *refusal) {
	codec.Uint(c, &x.why)
	if int(x.why) >= len(remembered()) {
		x.why = 0
		c.Fail("no such refusal")
	}
	codec.String(c, &x.text)
	nodeID(c, &x.Node)
	codec.Int(c, &x.Need)
	codec.Int(c, &x.Available)
	codec.Int(c, &x.Limit)
}

func outcomeFields(c *codec.Coder, x *outcome) {
	codec.Fixed(c, x.payload[:])
	codec.Int(c, &x.at)
	codec.Record(c, &x.receipt, receiptFields)
	codec.Optional(c, &x.refusal, refusalFields)
	codec.Bool(c, &x.lasting)
}

func nodeFields(c *codec.Coder, x *Payer) {
	nodeID(c, &x.Parent)
	budgetFields(c, &x.Budget)
	for _, sum := range [...]*Credits{&x.Held, &x.Spent, &x.Debt, &x.Owes, &x.Own} {
		codec.Int(c, sum)
	}
	codec.Int(c, &x.Start)
	codec.Int(c, &x.Day)
	codec.Int(c, &x.Month)
}

func bucketFields(c *codec.Coder, x *Bucket) {
	codec.Record(c, &x.Grant, grantFields)
	for _, sum := range [...]*Credits{&x.Avail, &x.Held, &x.Spent, &x.Expired, &x.Void} {
		codec.Int(c, sum)
	}
	codec.Bool(c, &x.Voided)
	codec.Bool(c, &x.waits)
	codec.Bool(c, &x.swept)
}

func part(c *codec.Coder, x *Part) {
	codec.Uint(c, &x.Bucket)
	codec.Int(c, &x.Held)
	codec.Int(c, &x.Spent)
	codec.Int(c, &x.Refunded)
}

func segment(c *codec.Coder, x *Segment) { codec.Record(c, x, segmentFields) }

func segmentFields(c *codec.Coder, x *Segment) {
	codec.String(c, &x.GPUType)
	codec.Int(c, &x.GPUs)
	codec.Int(c, &x.Price)
	codec.Int(c, &x.Since)
	codec.Int(c, &x.Base)
	codec.Int(c, &x.Count)
	codec.Uint(c, &x.Epoch)
	codec.Uint(c, &x.Sample)
	codec.Int(c, &x.Seen)
	codec.Int(c, &x.Excess)
	codec.Bool(c, &x.Ended)
	codec.List(c, &x.Mix, priced)
	codec.List(c, &x.Past, past)
}

func gpusFields(c *codec.Coder, x *GPUs) {
	codec.String(c, &x.Type)
	codec.Int(c, &x.Count)
}

func priced(c *codec.Coder, x *Priced) {
	gpusFields(c, &x.GPUs)
	codec.Int(c, &x.Price)
}

func past(c *codec.Coder, x *Past) {
	codec.Int(c, &x.Until)
	codec.List(c, &x.Shares, priced)
}

func lienFields(c *codec.Coder, x *Lien) {
	codec.Record(c, &x.Claim, claimFields)
	codec.Uint(c, &x.State)
	codec.Int(c, &x.Since)
	codec.Int(c, &x.Ended)
	codec.List(c, &x.Parts, part)
	codec.List(c, &x.Segments, segment)
	codec.Int(c, &x.Adjusted)
	codec.Bool(c, &x.Unproven)
	codec.Int(c, &x.Start)
	codec.Int(c, &x.Day)
	codec.Int(c, &x.Month)
	codec.Bool(c, &x.CutShort)
}
