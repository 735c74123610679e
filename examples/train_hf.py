"""Trains a small preconditioned Gated DeltaNet on the bytes of a text file with transformers' Trainer, then continues a
prompt with it.

    python examples/train_hf.py README.md --steps 100 --out /tmp/pgdn
"""

import argparse
from pathlib import Path

import torch
from transformers import Trainer, TrainingArguments

from deltanet.models import PrecondGatedDeltaNetConfig, PrecondGatedDeltaNetForCausalLM


def rows_of(path, length):
    """The bytes of a file as rows of `length` tokens."""
    tokens = list(Path(path).read_bytes())
    rows = [tokens[i : i + length] for i in range(0, len(tokens) - length + 1, length)]
    if not rows:
        raise SystemExit(f"{path}: given {len(tokens)} bytes; expected at least {length}")
    return [{"input_ids": row, "labels": row} for row in rows]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("text", help="file to train on")
    parser.add_argument("--out", help="where to save the model")
    parser.add_argument("--steps", type=int, default=100)
    parser.add_argument("--length", type=int, default=256, help="tokens in a row")
    parser.add_argument("--batch", type=int, default=8)
    parser.add_argument("--hidden-size", type=int, default=128)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--prompt", default="The ")
    args = parser.parse_args()

    torch.manual_seed(0)
    config = PrecondGatedDeltaNetConfig(
        vocab_size=256,
        hidden_size=args.hidden_size,
        num_hidden_layers=args.layers,
        num_heads=args.hidden_size // 64 or 1,
        head_dim=64,
        expand_v=1.0,
        use_gate=False,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=None,
    )
    model = PrecondGatedDeltaNetForCausalLM(config)
    print(f"{model.num_parameters():,} parameters")
    trainer = Trainer(
        model=model,
        args=TrainingArguments(
            output_dir=args.out or "unused",
            max_steps=args.steps,
            per_device_train_batch_size=args.batch,
            learning_rate=3e-3,
            lr_scheduler_type="cosine",
            logging_steps=max(1, args.steps // 10),
            save_strategy="no",
            report_to=[],
            use_cpu=True,
            disable_tqdm=True,
        ),
        train_dataset=rows_of(args.text, args.length),
    )
    trainer.train()

    prompt = torch.tensor([list(args.prompt.encode())])
    ids = model.eval().generate(prompt, max_new_tokens=80, do_sample=True, top_p=0.9, pad_token_id=0)
    print(bytes(ids[0].tolist()).decode(errors="replace"))
    if args.out:
        model.save_pretrained(args.out)  # `deltanet generate`, deltanet.Model and upstream load it
        print(f"saved in {args.out}")


if __name__ == "__main__":
    main()
