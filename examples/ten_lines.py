"""The library in ten lines: twenty peers train, two of them leave, and the others go on without."""

import torch

from pdlrecover import Federation, Tolerance

model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.Tanh(), torch.nn.Linear(8, 2))
labels = torch.arange(40) % 2
datasets = [(torch.randn(40, 4) + labels[:, None], labels) for peer in range(20)]

federation = Federation.simulate(model, datasets, Tolerance(colluders=6, dropouts=6, liars=1))
federation.train(rounds=100, learning_rate=0.3)
recovered = federation.recover(remove=[3, 7])
print(recovered)
print(f"accuracy on peer 0's data: {recovered.accuracy(*datasets[0]):.0%}")
