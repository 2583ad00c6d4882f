// Package jobscript reads what a user asks for when submitting a job: the batch
// script with its #GSUB lines, the GSUB_* environment and the command line.
//
// It decides, from these texts and the time alone, which options are asked for,
// what each means, which one wins, and what is wrong with them, naming the place.
// One table of options serves all three. It never asks the cluster, so whether a
// partition exists or a request can be satisfied is not its question.
//
// The strongest first: command line, environment, #GSUB lines, #SBATCH lines.
// #SBATCH lines count because scripts that have them exist; options of sbatch
// that would not change what runs are accepted with a warning, the others refused
// with advice.
//
// Slurm's manual pages sbatch(1) and squeue(1) are the source of the spellings.
package jobscript
